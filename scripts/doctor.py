"""What works from here: `python scripts/doctor.py [--json] [--config FILE] [--key value ...]`, as for main.py.

One row a tracker: installed version, whether a key is configured, what its server says and in what time, whether its
store can be written, and the configuration line to use. Then versions, devices, disk, and what the configuration asks
for that does not work. With --privacy strict no server beyond this machine is asked.

Exit code 0: training can record. 1: something that the configuration asks for does not work. 2: bad configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.config import Config  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.metrics.metadata import versions  # noqa: E402
from navrl.pipes import run_program  # noqa: E402
from navrl.redaction import filter_texts, redact, redact_all  # noqa: E402
from navrl.tracking.doctor import Finding, examine, nearest, why_not_writable  # noqa: E402

LEAST_FREE_MB = 100  # a run's own record with its checkpoints and animations, several times over
LONGEST_CELL = 40
HEAD = ("tracker", "asked", "version", "key", "server", "time", "store", "use")


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(__doc__)
        return 0
    try:
        from envs.registry import validate_settings

        config = load([word for word in argv if word != "--json"], os.environ, validate_settings).config
    except ConfigError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    filter_texts(config.log_filter)
    findings = examine(config, os.environ)
    machine, faults = _machine(config)
    faults += [f"{finding.tracker}: {finding.fault}" for finding in findings if finding.fault]
    if "--json" in argv:
        report = {"trackers": [asdict(finding) for finding in findings], **machine, "faults": faults}
        print(json.dumps(redact_all(report), indent=2))
    else:
        print(redact(_text(findings, machine, faults)))
    return 1 if faults else 0


def _machine(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Versions, devices and disk, and what of them does not do."""
    found, faults, devices = versions(), [], ["cpu"]
    facts: dict[str, Any] = {"versions": {name: found.get(name) for name in ("python", "torch", "mpe2")}}
    try:
        import torch

        devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
        from runners.setup import resolve_device

        resolve_device(config.device)
    except ConfigError as error:
        faults += [str(fault) for fault in error.faults]
    except ImportError as error:
        faults.append(f"{error.name}: not installed: pip install -r requirements.txt")
    if found.get("mpe2") is None and not config.env_id.startswith("pettingzoo:"):
        faults.append("mpe2: not installed, and the final evaluation runs on it: pip install -r requirements.txt")
    free = shutil.disk_usage(nearest(config.run_dir)).free // 2**20
    unwritable = why_not_writable(config.run_dir)
    if unwritable:
        faults.append(f"run_dir: cannot write {unwritable}; choose another --run_dir")
    elif free < LEAST_FREE_MB:
        faults.append(f"run_dir: {free} MB left on the disk of {config.run_dir}; {LEAST_FREE_MB} are the least for a run")
    facts |= {"devices": devices, "run_dir": config.run_dir, "run_dir_writable": not unwritable, "free_mb": free}
    return facts, faults


def _text(findings: list[Finding], machine: dict[str, Any], faults: list[str]) -> str:
    rows = [HEAD]
    for f in findings:
        seconds = "" if f.seconds is None else f"{f.seconds:.2f} s"
        store = f.store if len(f.store) <= LONGEST_CELL else f.store[: LONGEST_CELL - 3] + "..."
        rows.append((f.tracker, "yes" if f.asked else "no", f.version or "none", f.key, f.reach, seconds, store, f.setting))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    version = ", ".join(f"{name} {number or 'none'}" for name, number in machine["versions"].items())
    state = f"writable, {machine['free_mb']:,} MB left" if machine["run_dir_writable"] else "not writable"
    lines += ["", f"{version}; devices: {', '.join(machine['devices'])}", f"runs go to {machine['run_dir']}: {state}"]
    return "\n".join(lines + ["", *(faults or ["training can record what the configuration asks for"])])


if __name__ == "__main__":
    run_program(main)
