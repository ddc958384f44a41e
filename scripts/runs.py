"""Find and list runs: which there are, how they are doing, and what one of them was.

    python scripts/runs.py                                  all under runs/ (NAVRL_RUNS)
    python scripts/runs.py NAME_OR_DIR ...                  a directory, or the name of a run or group; one run in full
    python scripts/runs.py --where lr=5e-4 network=gru --since 2d --status running crashed
    python scripts/runs.py --watch                          again every few seconds, until Ctrl-C

`stalled`: it runs and has been silent for much longer than its rows are apart. `crashed`: its process is gone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis.listing import REWARDS, STATES, Listed, Wanted, condition, moment, search, sparkline  # noqa: E402
from navrl.analysis.run_card import card, details, printable  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402
from navrl.tracking.convert import json_ready  # noqa: E402

COLOURS = {"running": "32", "stalled": "33", "failed": "31", "crashed": "31", "interrupted": "33"}
TITLES = ("run", "state", "step", "budget", "reward", "last row", "age", "curve")


def main(argv: list[str]) -> int:
    options = _options(argv)
    try:
        return _watch(options) if options.watch else _once(options)
    except KeyboardInterrupt:
        if options.watch:  # how one ends it
            return 0
        raise


def _once(options: argparse.Namespace) -> int:
    runs, left_out = search(options.words, options.run_dir, _wanted(options))
    if options.json:
        print(json.dumps([_plain(run, options.show) for run in runs], indent=2, allow_nan=False))
    elif options.show or (options.words and len(runs) == 1):
        print("\n\n".join("\n".join(card(run)) for run in runs))
    else:
        print("\n".join(table(runs, sys.stdout.isatty(), time.time())))
    for left in left_out:
        print(f"{left.source}: {left.reason}", file=sys.stderr)
    return 2 if left_out else 0


def _watch(options: argparse.Namespace) -> int:
    while True:
        runs, left_out = search(options.words, options.run_dir, _wanted(options))
        lines = table(runs, sys.stdout.isatty(), time.time()) + [f"{left.source}: {left.reason}" for left in left_out]
        if sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="")
        print("\n".join(lines), flush=True)
        time.sleep(options.interval)


def table(runs: list[Listed], colour: bool, now: float) -> list[str]:
    """Lines: a title a group, a line a run."""
    lines = []
    cells = {run.directory: _cells(run, now) for run in runs}
    widths = [max(len(row[column]) for row in (TITLES, *cells.values())) for column in range(len(TITLES))]
    for place, members in groupby(runs, key=lambda run: run.directory.parent):
        members = list(members)
        count = f"{len(members)} run{'s' if len(members) != 1 else ''}"
        lines += [f"{printable(place)}  ({count})", "  " + _line(TITLES, widths)]
        for run in members:
            line = "  " + _line(cells[run.directory], widths)
            code = COLOURS.get(run.state)
            lines.append(f"\x1b[{code}m{line}\x1b[0m" if colour and code else line)
        lines.append("")
    counts = [f"{count} {state}" for state in STATES if (count := sum(run.state == state for run in runs))]
    return [*lines, f"{len(runs)} runs" + (f": {', '.join(counts)}" if counts else "")]


def _cells(run: Listed, now: float) -> tuple[str, ...]:
    number = "" if run.reward is None else f"{run.reward:.2f}" + ("" if run.metric == REWARDS[0] else " (train)")
    step, budget = ("" if steps is None else f"{steps:,}" for steps in (run.step, run.budget))
    return (printable(run.name), run.state, step, budget, number, _span(now, run.last_row), _span(now, run.started),
            sparkline(run.curve))  # fmt: skip


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    shown = [cell.rjust(width) if 2 <= column <= 6 else cell.ljust(width)
             for column, (cell, width) in enumerate(zip(cells, widths))]  # fmt: skip
    return "  ".join(shown).rstrip()


def _span(now: float, then: float | None) -> str:
    """``45s``, ``12m``, ``3h``, ``5d``."""
    if then is None:
        return ""
    seconds = max(0.0, now - then)
    for unit, size, limit in (("s", 1, 90), ("m", 60, 90), ("h", 3600, 48)):
        if seconds < size * limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def _plain(run: Listed, show: bool) -> dict:
    values = dataclasses.asdict(run)
    if show:
        values |= details(run)
    return json_ready(values)


def _wanted(options: argparse.Namespace) -> Wanted:
    since = None if options.since is None else moment(options.since)
    return Wanted(dict(options.where), options.commit, since, options.status)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("words", nargs="*", metavar="NAME_OR_DIR", help="default: all under --run_dir")
    parser.add_argument("--run_dir", type=Path, default=Path(os.environ.get("NAVRL_RUNS") or "runs"),
                        help="root of runs (default: NAVRL_RUNS, else runs)")  # fmt: skip
    parser.add_argument("--where", nargs="+", action="extend", type=_said(condition), default=[], metavar="KEY=VALUE",
                        help="configured so, as written or as resolved (critic_lr: null is lr's value); read as a "
                             "configuration is, so lr=5e-4 finds 0.0005")  # fmt: skip
    parser.add_argument("--commit", default="", metavar="HASH", help="of this commit (its first digits)")
    parser.add_argument("--since", type=_said(lambda text: moment(text) and text), metavar="SPAN_OR_DATE",
                        help="wrote a row since: 30m, 12h, 2d, 3w ago, or 2026-11-30")  # fmt: skip
    parser.add_argument("--status", nargs="+", choices=STATES, default=[], help="in one of these states")
    parser.add_argument("--show", action="store_true", help="each run in full, not in a line")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    parser.add_argument("--interval", type=whole(1), metavar="SECONDS", help="of --watch (default: 5)")
    options = parser.parse_args(argv)
    for other in ("json", "show"):
        if options.watch and getattr(options, other):
            parser.error(f"--{other} and --watch exclude each other")
    if options.interval is not None and not options.watch:
        parser.error("--interval needs --watch")
    options.interval = options.interval or 5
    return options


def _said(read):
    """A type for ``add_argument`` whose ValueError is shown in its own words."""

    def type_(text: str):
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return type_


if __name__ == "__main__":
    run_program(main)
