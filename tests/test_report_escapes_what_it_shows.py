"""Names, values and messages of records are shown in a report as they stand, and never do anything."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import Browser

from navrl.analysis.comparison import Comparison, compare
from navrl.analysis.records import LeftOut, Run
from navrl.analysis.report.data import document
from navrl.analysis.report.markdown import markdown

BREAKERS = (
    "</script><script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>",
    "--><!--<svg onload=window.harmed=1>",
    '"><a href="javascript:window.harmed=1">x</a>',
    "{{ 7 * 7 }}{% raw %}",
    "`|*_[x](javascript:alert(1))<b>",
    "${window.harmed = 1}\u2028\u0000\r\n# no heading",
)


def hostile_run(directory: Path, number: int, text: str) -> Run:
    """A run all of whose texts are ``text``, with an index of checkpoints and a journal that hold it too."""
    run_dir = directory / f"run{number}"
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "tracking").mkdir()
    index = {"checkpoints": [{"file": text, "step": 1, "sha256": text}]}
    (run_dir / "checkpoints" / "index.json").write_text(json.dumps(index))
    alert = {"event": "alert", "step": 1, "title": text, "text": text}
    (run_dir / "tracking" / "events.jsonl").write_text(json.dumps(alert) + "\n")
    steps = np.array([0.0, 100.0, 200.0])
    reward = np.array([-3.0, -2.0, -1.0]) + number
    columns = {"step": steps, "time": steps / 50, "train/episode_count": steps / 25, "eval/episode_reward": reward,
               f"eval/{text}/success_rate": np.array([0.0, 0.5, 1.0])}  # fmt: skip
    return Run(
        source=str(run_dir), group=text, name=text, seed=None, status=text, config={"env_id": text, "optimizer": text},
        metadata={"git_commit": text, "versions": {text: text}, "return_scale": text, "command": text, "started": text},
        summary={"artifacts": [{"file": text, "aliases": [text], "step": text}]}, columns=columns,
    )  # fmt: skip


@pytest.fixture(params=BREAKERS)
def comparison(request: pytest.FixtureRequest, tmp_path: Path) -> Comparison:
    runs = [hostile_run(tmp_path / place, number, request.param) for number, place in enumerate(("a", "a", "b", "b"))]
    metrics = ["eval/episode_reward", f"eval/{request.param}/success_rate"]
    left = [LeftOut(str(tmp_path / "x") + request.param, request.param)]
    return compare(runs, metrics, left_out=left, axes=("step", "time"))


class Tags(HTMLParser):
    """Tags that a browser would see, and the text of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src") or name.startswith("on")]


@pytest.mark.requires_service("chromium")
def test_a_page_of_hostile_records_does_nothing(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from navrl.analysis.report.page import page

    texts = [*BREAKERS, *BREAKERS[:1]]
    runs = [hostile_run(tmp_path / f"group{number // 2}", number, text) for number, text in enumerate(texts)]
    metrics = ["eval/episode_reward", *(f"eval/{text}/success_rate" for text in BREAKERS)]
    left = [LeftOut(text, text) for text in BREAKERS]
    html = tmp_path / "report.html"
    made = document(compare(runs, metrics, left_out=left, axes=("step",)), tmp_path, made=BREAKERS[0], name=BREAKERS[0])
    html.write_text(page(made), encoding="utf-8")
    browser = Browser(tmp_path / "profile")
    try:
        browser.listen()
        browser.open(html.as_uri())
        browser.wait("document.readyState == 'complete'")
        browser.wait("document.querySelectorAll('.js-plotly-plot').length == document.querySelectorAll('.plot').length")
        assert browser.complaints() == [] and browser.requests() == [html.as_uri()]
        assert browser.run("window.harmed === undefined")
        assert browser.run("document.querySelectorAll('script').length") == 5  # the data, plotly.js and three of ours
        harm = "main img, [onload], [onerror], a[href^=javascript]"
        assert browser.run(f"document.querySelectorAll('{harm}').length") == 0
        assert browser.run("document.querySelector('h1').textContent") == BREAKERS[0]
        names = browser.run("[...document.querySelectorAll('.runs tbody th')].map(cell => cell.textContent)")
        assert [" ".join(name.split()) for name in names[:3]] == [" ".join(text.split()) for text in texts[:3]]
    finally:
        browser.close()


def test_markdown_of_hostile_records_is_text(comparison: Comparison, tmp_path: Path) -> None:
    render = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).enable("table").render
    made = document(comparison, tmp_path, made="today")
    text = markdown(made, [("a [caption]", "a picture.png")])
    found = Tags()
    found.feed(render(text))
    assert set(found.tags) <= set("h1 h2 h3 p ul li table thead tbody tr th td strong img".split()), found.tags
    assert found.links == ["a%20picture.png"]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all("\\|" in row or row.count("|") >= 3 for row in rows)
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert "# no heading" not in headings and len(headings) == len(set(headings))


def test_a_page_has_no_room_for_other_scripts(comparison: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from navrl.analysis.report.page import page

    html = page(document(comparison, tmp_path, made="today"))
    found = Tags()
    found.feed(html)
    assert found.tags.count("script") == 5 and "img" not in found.tags
    assert all(link.startswith("#") or link == "data:," for link in found.links), found.links
    (policy,) = [line for line in html.splitlines() if "Content-Security-Policy" in line]
    assert "default-src &#39;none&#39;" in policy and policy.count("sha256-") == 4
    assert "script-src &#39;unsafe" not in policy and "connect-src" not in policy and "http:" not in policy
