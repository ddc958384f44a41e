"""The report as one HTML file that needs nothing else: styles, scripts and figures are inside, and no address is asked.

page.html is the frame (a Jinja2 template that escapes every value), page.css its looks, page.js the reader's choices,
charts.js the curves, player.js the episodes; plotly.js comes from the plotly package. A Content-Security-Policy lets
these scripts run and no other, and no connection at all: what a record says can be shown, never executed.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = ("player.js", "charts.js", "page.js")
LIMIT = 15 * 10**6  # bytes; what mail and chat still take
_DASHES = {"solid": "", "dash": "7 3", "dot": "2 3", "dashdot": "7 3 2 3"}  # plotly's names, as SVG has them


def page(document: dict[str, Any]) -> str:
    """``data.document`` as HTML. ImportError without jinja2 or plotly; ValueError where it is beyond ``LIMIT``."""
    import jinja2
    from plotly.offline import get_plotlyjs

    scripts = [_inside(get_plotlyjs()), *(_inside(_read(name)) for name in SCRIPTS)]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    # Figures name their metric by its place: a name with a control character is another one once HTML has been read.
    places = {metric: place for place, metric in enumerate(document["drawing"]["metrics"])}
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    html = environment.get_template("page.html").render(
        **document, style=_read("page.css"), scripts=scripts, policy=_policy(scripts), dashes=_DASHES, places=places
    )
    size = len(html.encode())
    if size > LIMIT:
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}: compare fewer runs, or fewer "
            "metrics with --metric"
        )
    return html


def _policy(scripts: list[str]) -> str:
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    # Styles: plotly.js writes some; images: its button that saves a chart as a picture.
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def _inside(script: str) -> str:
    """A script as a browser reads it inside HTML, for its digest must be that of the same characters."""
    if "</script" in script.lower():
        raise ValueError("a script of the page ends itself")
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
