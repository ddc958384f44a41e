"""The report's page in a real browser without any network: every figure is drawn, controls act, episodes play.

The pages are those that scripts/report.py writes of real runs; what they show is held to the runs' own files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from report_tools import GROUPS, report, train_groups

pytestmark = pytest.mark.requires_service("chromium")
pytest.importorskip("plotly")

DRAWN = "document.querySelectorAll('.js-plotly-plot').length == document.querySelectorAll('.plot').length"
TRACES = "[...document.querySelectorAll('figure.chart .plot')].map(plot => plot.data.map(t => t.name || ''))"
SOME = ("train/entropy", "train/value_loss", "eval/success_rate", "eval/collision_count", "perf/env_steps_per_second")
DISCS = """[...document.querySelectorAll('.episode')].map(episode => [...episode.querySelectorAll('.agent')]
    .map(disc => [+disc.getAttribute('cx'), -disc.getAttribute('cy')]))"""


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return train_groups(tmp_path_factory.mktemp("page") / "runs")


@pytest.fixture(scope="module")
def page(groups: list[Path]) -> Path:
    """A report of some metrics of each layer: a browser draws it sooner."""
    return write(groups, "some.html", "--metric", *SOME)


def write(groups: list[Path], name: str, *words: str) -> Path:
    out = groups[0].parents[1] / name
    code, said, err = report(*groups, "--out", out, *words)
    assert code == 0 and said == f"{out}\n", err
    assert out.stat().st_size < 15e6
    return out


def show(page: Path, profile: Path) -> Browser:
    """The page, opened and drawn, with the network switched off."""
    browser = Browser(profile, 1300, 900)
    browser.listen()
    browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    browser.open(page.as_uri())
    browser.wait("document.readyState == 'complete' && " + DRAWN)
    return browser


@pytest.fixture(scope="module")
def opened(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = show(page, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(opened: Browser, page: Path) -> Iterator[Browser]:
    """After each test: nothing was asked of any network and nothing complained."""
    yield opened
    assert opened.complaints() == []
    assert opened.requests() == [page.as_uri()]


def rows_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")


def redrawn(browser: Browser, condition: str) -> None:
    browser.wait(f"[...document.querySelectorAll('figure.chart .plot')].every(plot => {condition})", 60)


def test_every_figure_is_drawn_with_each_seed_and_the_mean_of_each_group(groups: list[Path], tmp_path: Path) -> None:
    page = write(groups, "all.html")
    browser = show(page, tmp_path)
    try:
        metrics = {name for run in groups[0].iterdir() for row in rows_of(run) for name in row}
        drawn = browser.run("Object.keys(report.metrics)")
        assert set(drawn) == metrics - {"step", "time", "train/episode_count"} and len(drawn) > 30
        for names in browser.run(TRACES):
            for group in ("mappo", "ippo"):
                assert {f"{group} seed 1", f"{group} seed 2", f"{group}, mean"} <= set(names)
        lines = "plot => plot.querySelectorAll('.scatterlayer .trace').length > 0"
        assert browser.run(f"[...document.querySelectorAll('.plot')].every({lines})")
        sections = browser.run("[...document.querySelectorAll('main h2')].map(h => h.textContent)")
        assert [title for title in sections if title[0].isdigit()] == [
            "1 Stability", "2 Task", "3 Behaviour", "4 Metadata and cost"]  # fmt: skip
        buttons = set(browser.run("[...document.querySelectorAll('.modebar-btn')].map(button => button.dataset.title)"))
        assert buttons == {"Download plot as a PNG", "Reset axes"}  # none that sends data anywhere
        differs = browser.run("document.querySelector('.settings .differs').innerText")
        assert differs.split() == ["algorithm_name", "differs", "mappo", "ippo"]
        assert browser.complaints() == [] and browser.requests() == [page.as_uri()]
    finally:
        browser.close()


def test_a_curve_is_the_record(browser: Browser, groups: list[Path]) -> None:
    place = "Object.keys(report.metrics).indexOf('eval/success_rate')"
    figure = f"document.querySelector(`#layer2 figure[data-metric=\"${{{place}}}\"] .plot`)"
    mean = browser.run(f"{figure}.data.find(t => t.name == 'ippo, mean')")
    runs = [{row["step"]: row["eval/success_rate"] for row in rows_of(run) if "eval/success_rate" in row}
            for run in sorted(groups[1].iterdir())]  # fmt: skip
    assert mean["x"] == sorted(runs[0])
    np.testing.assert_allclose(mean["y"], [np.mean([run[step] for run in runs]) for step in mean["x"]], rtol=1e-5)


def test_groups_seeds_and_axis_are_chosen_for_all_figures(browser: Browser, groups: list[Path]) -> None:
    click(browser, "#controls input.group[value='1']")
    redrawn(browser, "plot.data.length && plot.data.every(t => !(t.name || '').startsWith('ippo'))")
    shown = browser.run("[...document.querySelectorAll('.stage > div:not([hidden]) h3')].map(h => h.textContent)")
    assert shown == [GROUPS[0]]
    click(browser, "#controls input.group[value='1']")
    redrawn(browser, "plot.data.some(t => t.name == 'ippo, mean')")
    click(browser, "#controls input.run[value='0']")
    redrawn(browser, "plot.data.every(t => t.name != 'mappo seed 1') && plot.data.some(t => t.name == 'mappo seed 2')")
    assert browser.run("document.querySelectorAll('.episode[hidden]').length") == 1
    assert browser.run("document.querySelector('.every-run').checked") is False
    click(browser, "#controls input.every-run")
    redrawn(browser, "plot.data.some(t => t.name == 'mappo seed 1')")

    click(browser, "#controls input[value='episodes']")
    redrawn(browser, "plot.layout.xaxis.title.text == 'episodes'")
    last = [rows_of(run)[-1]["train/episode_count"] for group in groups for run in group.iterdir()]
    ends = browser.run("document.querySelector('#layer1 .plot').data.filter(t => t.name).map(t => Math.max(...t.x))")
    assert set(ends) == set(last)
    browser.run("""for (const [name, value] of [['from', 40], ['to', 120]]) {
        const input = document.querySelector('#controls .' + name);
        input.value = value;
        input.dispatchEvent(new Event('change'));
    }""")
    redrawn(browser, "plot.layout.xaxis.range[0] == 40 && plot.layout.xaxis.range[1] == 120")
    click(browser, "#controls .whole")
    redrawn(browser, "plot._fullLayout.xaxis.range[1] > 150")


def test_a_mouse_zooms_and_asks_for_values_and_a_zoom_outlives_other_choices(browser: Browser) -> None:
    plot = "document.querySelector('#layer1 .plot')"
    browser.run(f"{plot}.scrollIntoView({{behavior: 'instant', block: 'center'}})")
    box = browser.run(f"{plot}.querySelector('.nsewdrag').getBoundingClientRect().toJSON()")
    point = """(p => {  // of the last curve, where it is farthest from all others
        const own = p.data.at(-1), others = p.data.slice(0, -1)
        const apart = Array.from(own.y, (y, i) => Math.min(...others.map((other) => Math.abs(other.y[i] - y)).filter(isFinite)))
        const k = apart.indexOf(Math.max(...apart.filter(isFinite)))
        return [p._fullLayout.xaxis.d2p(own.x[k]), p._fullLayout.yaxis.d2p(own.y[k])]
    })"""
    x, y = browser.run(f"{point}({plot})")
    browser.mouse(("mouseMoved", box["x"] + x - 3, box["y"] + y - 3), ("mouseMoved", box["x"] + x, box["y"] + y))
    browser.wait(f"{plot}.querySelectorAll('.hoverlayer .hovertext').length")
    assert "ippo" in browser.run(f"{plot}.querySelector('.hoverlayer').textContent")

    start, end = browser.run(f"{plot}._fullLayout.xaxis.range")
    middle, left, right = (box["y"] + box["height"] / 2, *(box["x"] + part * box["width"] for part in (0.25, 0.5)))
    way = [("mouseMoved", left + part * (right - left), middle) for part in (0.2, 0.6, 1.0)]
    browser.mouse(("mouseMoved", left, middle), ("mousePressed", left, middle), *way, ("mouseReleased", right, middle))
    browser.wait(f"{plot}._fullLayout.xaxis.range[0] > {start + 1}")
    zoomed = browser.run(f"{plot}._fullLayout.xaxis.range")
    assert zoomed == pytest.approx([start + part * (end - start) for part in (0.25, 0.5)], rel=0.05)
    click(browser, "#controls input.group[value='0']")
    browser.wait(f"{plot}.data.every(t => !(t.name || '').startsWith('mappo'))")
    assert browser.run(f"{plot}._fullLayout.xaxis.range") == zoomed
    click(browser, "#controls input.group[value='0']")
    browser.wait(f"{plot}.data.some(t => t.name == 'mappo, mean')")
    browser.run(f"{plot}.querySelector('[data-title=\"Reset axes\"]').click()")
    browser.wait(f"{plot}._fullLayout.xaxis.range[1] == {end}")


def test_the_slider_shows_each_seed_at_a_step(browser: Browser, groups: list[Path]) -> None:
    browser.run("""(() => { const figure = document.querySelector('.distribution');
        figure.querySelector('.metric').value = 'train/entropy';
        figure.querySelector('.metric').dispatchEvent(new Event('change'));
        figure.querySelector('.step').value = 50;
        figure.querySelector('.step').dispatchEvent(new Event('input')); })()""")
    assert browser.run("document.querySelector('.step-said').textContent") == "2,000"
    plot = "document.querySelector('.distribution .plot')"
    shown = browser.run(plot + ".data.filter(t => t.mode == 'markers').map(t => t.x)")
    for group, values in zip(groups, shown):
        wanted = [[row["train/entropy"] for row in rows_of(run) if "train/entropy" in row and row["step"] <= 2000][-1]
                  for run in sorted(group.iterdir())]  # fmt: skip
        np.testing.assert_allclose(values, wanted, rtol=1e-5)
    assert "2 of 2 seeds" in browser.run("document.querySelector('.distribution .ends').textContent")


def episode_files(groups: list[Path], index: int) -> list[dict[str, np.ndarray]]:
    runs = [run for group in groups for run in sorted(group.iterdir())]
    return [dict(np.load(next(run.glob(f"media/*_episode{index}.npz")))) for run in runs]


def scrub(browser: Browser, step: int) -> None:
    browser.run(f"(() => {{ const s = document.querySelector('.scrub'); s.value = {step};"
                "s.dispatchEvent(new Event('input')); })()")  # fmt: skip


def test_an_episode_shows_what_its_file_holds_at_every_step(browser: Browser, groups: list[Path]) -> None:
    for index in (1, 0):
        browser.run(f"(() => {{ const c = document.querySelector('.episode-choice'); c.value = {index};"
                    "c.dispatchEvent(new Event('change')); })()")  # fmt: skip
        files = episode_files(groups, index)
        for step in (0, 1, 12, 25):
            scrub(browser, step)
            assert browser.run("document.querySelector('.clock').textContent") == f"step {step} of 25"
            np.testing.assert_allclose(browser.run(DISCS), [file["agent_pos"][step, 0] for file in files], atol=1e-3)
            touching = browser.run("[...document.querySelectorAll('.episode')].map(e => "
                                   "[...e.querySelectorAll('.agent')].map(a => a.classList.contains('contact')))")
            for file, flags in zip(files, touching):
                place, radii = file["agent_pos"][step, 0], file["agent_radii"]
                apart = np.linalg.norm(place[:, None] - place[None], axis=-1) + 9 * np.eye(len(radii))
                assert flags == (apart < radii[:, None] + radii[None]).any(axis=1).tolist()
    first = []  # step from 1 on at which every goal has an agent within its radius
    for file in episode_files(groups, 0):
        away = np.linalg.norm(file["agent_pos"][1:, 0, :, None] - file["goal_pos"][1:, 0, None], axis=-1).min(axis=1)
        held = np.flatnonzero((away < file["goal_radius"]).all(axis=1))
        first.append(int(held[0]) + 1 if len(held) else None)
    pictures = "[...document.querySelectorAll('.episode > svg[role=img]')]"
    labels = browser.run(pictures + ".map(picture => picture.getAttribute('aria-label'))")
    assert [f"first success at step {step}" in label if step else "no success" in label
            for step, label in zip(first, labels, strict=True)] == [True] * 4  # fmt: skip


def test_an_episode_plays_and_obeys_the_keyboard(browser: Browser) -> None:
    at = "+document.querySelector('.scrub').value"
    browser.run("document.querySelector('.player').scrollIntoView({behavior: 'instant'})")
    browser.run("document.querySelector('.player').focus()")
    assert browser.run("document.querySelector('.play').textContent") == "Play"
    browser.press("Home")
    assert browser.run(at) == 0
    start = browser.run(DISCS)
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    browser.press("ArrowLeft")
    assert browser.run(at) == 1
    browser.press(" ", text=" ")
    assert browser.run("document.querySelector('.play').textContent") == "Pause"
    browser.wait(at + " > 3", 30)
    browser.press(" ", text=" ")
    paused = browser.run(DISCS)
    assert paused != start and browser.run("document.querySelector('.play').textContent") == "Play"
    assert browser.run(DISCS) == paused
    browser.run("document.querySelector('.speed').value = 5; document.querySelector('.play').click()")
    browser.wait(at + " == 25 && document.querySelector('.play').textContent == 'Play'", 30)  # it ends by itself
    browser.press("Home")
    browser.press("End")
    assert browser.run(at) == 25


def test_who_wants_less_motion_sees_whole_steps(browser: Browser, groups: list[Path]) -> None:
    recorded = {tuple(np.round(place, 3)) for file in episode_files(groups, 0)
                for place in file["agent_pos"][:, 0].reshape(-1, 2)}  # fmt: skip
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    try:
        browser.run("document.querySelector('.speed').value = 0.25; document.querySelector('.play').click()")
        seen = []
        for _ in range(12):
            seen += [tuple(place) for panel in browser.run(DISCS) for place in panel]
        browser.run("document.querySelector('.play').click()")
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])
    assert all(place in recorded for place in seen)


def test_all_of_it_can_be_reached_by_keyboard_and_seen_where_the_focus_is(browser: Browser) -> None:
    first = "document.querySelector('a, button, input, select, summary, [tabindex]')"
    assert browser.run(first + ".className") == "skip"
    browser.run(first + ".focus()")
    reached = []
    for _ in range(20):
        browser.press("Tab", windowsVirtualKeyCode=9)
        reached.append(browser.run("document.activeElement.className || document.activeElement.name || "
                                   "document.activeElement.localName"))  # fmt: skip
    assert {"group", "axis", "from", "to", "whole"} <= set(reached), reached
    assert browser.run("[...document.querySelectorAll('.wide, .player')].every(part => part.tabIndex == 0)")
    browser.run("document.querySelector('.play').focus()")
    browser.press("Tab", windowsVirtualKeyCode=9)
    outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    parts = "button, input, select, [role=group], [role=region], [role=img]"
    unnamed = browser.run(f"[...document.querySelectorAll('{parts}')]" + """
        .filter(e => !e.closest('.modebar') && !(e.labels && e.labels.length) && !e.getAttribute('aria-label')
                     && !e.textContent.trim()).map(e => e.outerHTML.slice(0, 80))""")
    assert unnamed == []


def test_a_phone_and_a_printer_get_a_page_that_fits(browser: Browser) -> None:
    try:
        browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        browser.wait("innerWidth == 390")
        assert browser.run("document.documentElement.scrollWidth") == 390
        wider = browser.run("""[...document.querySelectorAll('main *')].filter(e => !e.closest('.wide, .plot, svg')
            && e.getBoundingClientRect().right > 390.5).map(e => e.outerHTML.slice(0, 80))""")
        assert wider == []
        browser.call("Emulation.setEmulatedMedia", media="print")
        assert browser.run("getComputedStyle(document.querySelector('#controls')).display") == "none"
        assert browser.run("getComputedStyle(document.querySelector('.transport')).display") == "none"
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
        browser.call("Emulation.clearDeviceMetricsOverride")


def test_links_lead_to_checkpoints_that_have_these_digests(browser: Browser, groups: list[Path]) -> None:
    import hashlib

    rows = browser.run("""[...document.querySelectorAll('.digest')].map(cell =>
        [cell.parentElement.querySelector('a').href, cell.textContent])""")
    files = {path.as_uri(): hashlib.sha256(path.read_bytes()).hexdigest()
             for group in groups for path in group.glob("*/checkpoints/*.pt")}  # fmt: skip
    assert dict(rows) == files and len(rows) == len(files)
