"""Does a report of real runs open without a network, draw everything, play and obey? With pictures of it.

    python benchmarks/report_in_browser.py runs/NAVRL/GROUP runs/NAVRL/OTHER --pictures docs/images

Needs Chromium and what scripts/report.py needs. Pictures: report_desktop.png and report_phone.png.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import Browser  # noqa: E402
from PIL import Image  # noqa: E402
from report_tools import report  # noqa: E402

from navrl.pipes import Parser, run_program  # noqa: E402

DESKTOP, PHONE = (1400, 1300), (390, 844)
DRAWN = """document.readyState == 'complete'
    && document.querySelectorAll('.js-plotly-plot').length == document.querySelectorAll('.plot').length"""
PLAYED = "[...document.querySelectorAll('.agent')].map(d => d.getAttribute('cx') + d.getAttribute('cy')).join()"


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("groups", nargs="+", type=Path, metavar="GROUP")
    parser.add_argument("--pictures", type=Path, help="directory for the pictures (default: none)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="navrl-report-") as scratch:
        page = Path(scratch) / "report.html"
        with contextlib.redirect_stdout(io.StringIO()):
            code, _, err = report(*options.groups, "--out", page)
        if code:
            print(err, end="", file=sys.stderr)
            return code
        browser = Browser(Path(scratch) / "profile", *DESKTOP)
        bad = 0
        try:
            for question, seen, good in checks(browser, page, options.pictures, Path(scratch)):
                print(f"{'ok ' if good else 'BAD'}  {question:<62}{seen}", flush=True)
                bad += not good
        finally:
            browser.close()
    return 1 if bad else 0


def checks(
    browser: Browser, page: Path, pictures: Path | None, scratch: Path
) -> Iterator[tuple[str, object, bool]]:
    """(question, what was seen, whether that is good), one after another on the open page."""
    count = "document.querySelectorAll('{}').length".format
    megabytes = page.stat().st_size / 1e6
    yield "size, MB", round(megabytes, 1), megabytes < 15
    browser.listen()
    browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "hover", "value": "hover"}])  # a mouse, at rest
    browser.open(page.as_uri())
    browser.wait(DRAWN, 300)
    lines = "plot => plot.querySelectorAll('.scatterlayer .trace').length > 0"
    drawn = browser.run(f"[...document.querySelectorAll('.plot')].filter({lines}).length")
    yield "plots drawn, of", f"{drawn} of {browser.run(count('.plot'))}", drawn == browser.run(count(".plot"))
    yield "episodes side by side", browser.run(count(".episode")), browser.run(count(".episode")) > 0

    browser.run("document.querySelector('.player').scrollIntoView({behavior: 'instant'})")
    browser.run("document.querySelector('.player').focus()")
    browser.press("Home")
    before = browser.run(PLAYED)
    browser.press(" ", text=" ")
    browser.wait("+document.querySelector('.scrub').value >= 12")
    browser.press(" ", text=" ")
    moved = sum(a != b for a, b in zip(before.split(","), browser.run(PLAYED).split(",")))
    yield "agents that moved in 12 steps of play, of", f"{moved} of {browser.run(count('.agent'))}", moved > 0
    if pictures:
        take_desktop(browser, pictures / "report_desktop.png", scratch)

    of_group = "[...document.querySelectorAll('figure.chart .plot')].filter(p => p.data.some(t => (t.name || '')" \
               ".startsWith(report.groups[0].short))).length"  # fmt: skip
    charts = browser.run(of_group)
    browser.run("document.querySelector('#controls input.group').click()")
    browser.wait(f"{of_group} == 0", 120)
    hidden = browser.run("document.querySelectorAll('.stage > div[hidden]').length")
    yield "charts without the first group once it is switched off, of", f"{charts} of {charts}", hidden == 1
    browser.run("document.querySelector('#controls input.group').click()")
    browser.wait(f"{of_group} == {charts}", 120)
    yield "and with it again", charts, True

    width, height = PHONE
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
    browser.wait(f"innerWidth == {width}")
    reached = browser.run("document.documentElement.scrollWidth")
    yield "width of the page on a phone of 390 pixels", reached, reached == width
    if pictures:
        browser.open(page.as_uri())
        browser.wait(DRAWN, 300)
        take_phone(browser, pictures / "report_phone.png", scratch)
    browser.call("Emulation.clearDeviceMetricsOverride")
    yield "errors and warnings of the console", browser.complaints(), browser.complaints() == []
    others = [url for url in browser.requests() if url != page.as_uri()]
    yield "requests besides the file itself", others, others == []


def take_desktop(browser: Browser, out: Path, scratch: Path) -> None:
    """Summary with its curves above the episodes, at the moment that is shown."""
    parts = []
    for name, selector in (("top", "h1"), ("episodes", "#episodes")):
        browser.run(f"document.querySelector('{selector}').scrollIntoView({{behavior: 'instant'}})")
        if name == "top":
            browser.run("scrollTo(0, 0)")
        parts.append(scratch / f"{name}.png")
        browser.wait("!document.querySelector('.dragcover')")
        browser.picture(parts[-1])
    join(parts, out, across=False)


def take_phone(browser: Browser, out: Path, scratch: Path) -> None:
    """Summary, curves, outcome and episodes on a phone, side by side."""
    parts = []
    for number, selector in enumerate(("h1", "#summary .charts", "#outcome", "#episodes")):
        browser.run(f"document.querySelector('{selector}').scrollIntoView({{behavior: 'instant'}})")
        browser.wait("[...document.querySelectorAll('#summary .plot')].every(p => p._fullLayout.width < 390)", 60)
        parts.append(scratch / f"phone{number}.png")
        browser.picture(parts[-1])
    join(parts, out, across=True)


def join(parts: list[Path], out: Path, *, across: bool, gap: int = 12) -> None:
    """Pictures beside each other (``across``) or below each other, in 256 colours."""
    images = [Image.open(part).convert("RGB") for part in parts]
    sizes = [image.width if across else image.height for image in images]
    length, breadth = sum(sizes) + gap * (len(images) - 1), max(i.height if across else i.width for i in images)
    whole = Image.new("RGB", (length, breadth) if across else (breadth, length), "#888888")
    at = 0
    for image, size in zip(images, sizes):
        whole.paste(image, (at, 0) if across else (0, at))
        at += size + gap
    whole.quantize(256, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    run_program(main)
