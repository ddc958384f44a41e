"""A small run that logs to its record and to trackers, as a program of its own: `python tracking_run.py '{...}'`.

Tests start it to kill it, to move what it leaves, and to see that nothing outlives it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GIF = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)  # one pixel
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main(options: dict[str, Any]) -> None:
    import numpy as np

    from navrl.tracking.hub import TrackerHub
    from navrl.tracking.record import LocalRecord

    first = 1
    if "resume" in options:
        record = LocalRecord.open(options["resume"])
        record.truncate_after(options["cut"])
        first = options["cut"] // 100 + 1
    else:
        record = LocalRecord.create(options["root"], "NAVRL", "group", options.get("name", "mappo_seed1"))
        record.write_config("lr: 5.0e-4\n")
        record.write_metadata({"git_commit": "0" * 40})
    settings = {
        "logger": options.get("logger", ["wandb"]),
        "wandb_mode": options.get("mode", "auto"),
        "project_name": "NAVRL",
        "group": "group",
        "experiment_name": "mappo seed1",
        "env_id": "pettingzoo:some:task",
        "algorithm_name": "mappo",
        "seed": 1,
        "wandb_tags": ["smoke"],
        **options.get("settings", {}),
    }
    began = time.monotonic()
    hub = TrackerHub(
        record,
        settings,
        science={"lr": 5e-4, "seed": 1, "nothing": None, "sizes": [64, 64]},
        metadata={"git_commit": "0" * 40, "command": "python main.py", "status": "running", "ended": None},
        total_env_steps=100 * options["rows"],
        source_root=options.get("source_root"),
        terminal=False,
    )
    started = time.monotonic() - began
    record.start_clock(options.get("base", 0.0))
    print(json.dumps({"run_dir": str(record.run_dir), "pid": os.getpid()}), flush=True)
    slowest = 0.0
    for i in range(first, first + options["rows"]):
        began = time.monotonic()
        hub.log(
            100 * i,
            {
                "train/loss": np.float32(0.1) * i,
                "train/episode_reward_mean": -20 + 0.1 * i,
                "odd/nan": float("nan"),
                "odd/inf": np.inf,
                "odd/flag": True,
            },
        )
        if i % options.get("every", 10) == 0:
            hub.log(100 * i, {"eval/episode_reward": -10 + 0.1 * i})
            record.flush()
            path = record.checkpoints_dir / f"checkpoint_ep{i}.pt"
            path.write_bytes(os.urandom(5000))
            hub.log_artifact(path, step=100 * i, episodes=i, score=-10 + 0.1 * i, aliases=["latest", "best"])
            if "media_bytes" in options:
                path = record.media_dir / f"step_{i}.gif"
                path.write_bytes(GIF.ljust(options["media_bytes"], b"\0"))
                hub.log_media(100 * i, "eval/large", path)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(options.get("pause", 0.0))
    np.savez(record.media_dir / "episode_0.npz", positions=np.arange(24.0).reshape(4, 3, 2), rewards=np.ones((4, 3)))
    for name in options.get("trajectories", ["eval/trajectory"]):
        hub.log_trajectory(100 * i, name, record.media_dir / "episode_0.npz")
    (record.media_dir / "episode_0.gif").write_bytes(GIF)
    hub.log_media(100 * i, "eval/episode", record.media_dir / "episode_0.gif", caption="episode 0")
    hub.log_table(100 * i, "eval/goals", ["goal", "distance"], [["a", np.float32(0.5)], ["b", float("nan")]])
    hub.alert("entropy collapse", "entropy is near zero", step=300)
    cost = hub.cost()
    if options.get("end") == "hang":
        time.sleep(3600)
    began = time.monotonic()
    lines = hub.finish(options.get("end", "finished"), options.get("exit_code", 0))
    print(
        json.dumps(
            {"started": started, "slowest": slowest, "cost": cost, "finish": time.monotonic() - began, "lines": lines}
        ),
        flush=True,
    )


# ---- for tests


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment without any tracker's variables, with a home directory of its own."""
    home.mkdir(parents=True, exist_ok=True)
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("WANDB_", "SWANLAB_", "MLFLOW_", "NETRC")) and not key.lower().endswith("_proxy")
    }
    return {**clean, "HOME": str(home), "OMP_NUM_THREADS": "1", **variables}


def start(env: dict[str, str], python: str = sys.executable, **options: Any) -> subprocess.Popen:
    return subprocess.Popen(
        [python, __file__, json.dumps(options, default=str)],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(env: dict[str, str], *, timeout: float = 60, **options: Any) -> dict[str, Any]:
    """Run to the end; what it printed as one mapping, with `out` and `err`."""
    process = start(env, **options)
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    result: dict[str, Any] = {"out": out, "err": err}
    for line in out.splitlines():
        if line.startswith("{"):
            result.update(json.loads(line))
    result["run_dir"] = Path(result["run_dir"])
    return result


def sync(
    env: dict[str, str], run_dir: Path, to: str = "wandb", timeout: float = 90, python: str = sys.executable
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [python, str(ROOT / "scripts" / "sync.py"), str(run_dir), "--to", to],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )


def kill_publisher(ledger: Path, rows: int) -> None:
    """kill -9 of a tracker's process once it has sent so many rows, or after a minute."""
    from navrl.tracking.ledger import read_ledger

    deadline = time.monotonic() + 60
    while read_ledger(ledger).get("rows", 0) < rows and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(read_ledger(ledger)["pid"], signal.SIGKILL)


def processes_with(text: str) -> list[str]:
    """Command lines of live processes that mention `text` (a temporary directory: only ours)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environ = (entry / "environ").read_bytes().decode(errors="replace")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if state != "Z" and (text in command or f"HOME={text}" in environ):
                found.append(f"{entry.name} {command}")
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
