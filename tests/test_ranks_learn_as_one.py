"""K processes with E/K copies each are one run: they learn, stop, fail and go on as one process does (torchrun, gloo)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rank_updates
import torch
from stop_tools import descendants, wait_for_rows
from whole_runs import ROOT, metadata, program, resume, rows, run_dirs, same_run, summary, tiny_argv, train

from navrl.faults import ConfigError
from navrl.ranks import ALONE
from navrl.tracking.record import read_summary
from runners.companions import Place, place_in_run

FLAGS = ("--total_env_steps", "20000", "--checkpoint_interval", "5", "--num_envs", "8", "--eval_interval", "10")


def torchrun(*words: str, launcher: tuple[str, ...] = ("--standalone", "--nproc_per_node=2")) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *launcher, *words], cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"torchrun hangs: {process.communicate()}")
    return process.returncode, out, err


def pid_of_rank(launcher: subprocess.Popen, rank: int) -> int:
    for pid in descendants(launcher.pid):
        if f"\0RANK={rank}\0".encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            return pid
    raise AssertionError(f"no process of rank {rank}")


def gone_within(seconds: float, pids: list[int]) -> None:
    deadline = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.05)


def test_the_first_update_equals_that_of_one_process(tmp_path: Path) -> None:
    file = tmp_path / "ranks.pt"
    code, _, err = finish(torchrun("tests/rank_updates.py", str(file)))
    assert code == 0, err
    together = torch.load(file)
    assert together.pop("an error of rank 1") == "rank 1: ValueError: it broke"
    for name, flags in rank_updates.CASES.items():
        alone = rank_updates.first_iteration(ALONE, flags)
        assert together[name].keys() == alone.keys()
        for what, value in alone.items():
            torch.testing.assert_close(
                together[name][what], value, rtol=1e-6, atol=1e-9, msg=lambda text: f"{name}, {what}: {text}"
            )
        assert alone["gradient"].abs().max() > 1e-3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks that was never stopped, each under a launcher of its own, as on two machines."""
    root = tmp_path_factory.mktemp("whole")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    nodes = [
        torchrun("main.py", *tiny_argv(root, *FLAGS), launcher=(
            "--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}",
            "--rdzv_id=whole", "--local_addr=127.0.0.1",
        ))
        for _ in range(2)
    ]  # fmt: skip
    ends = [finish(node) for node in nodes]
    assert [code for code, _, _ in ends] == [0, 0], ends
    said = "".join(out for _, out, _ in ends)
    assert said.count("run directory") == 1
    (run_dir,) = run_dirs(root)
    return run_dir


def test_its_record_is_that_of_a_run_in_one_process(whole: Path, tmp_path: Path) -> None:
    alone = train(tmp_path, *FLAGS).run_dir
    assert [row.keys() for row in rows(whole)] == [row.keys() for row in rows(alone)]
    for name in ("step", "train/episode_count", "train/lr"):
        assert [row.get(name) for row in rows(whole)] == [row.get(name) for row in rows(alone)]
    # The first iteration is collected with equal weights, so its episodes are the same ones.
    first, second = (next(row for row in rows(run) if row["step"] == 200) for run in (whole, alone))
    assert first["train/episode_reward_mean"] == pytest.approx(second["train/episode_reward_mean"], rel=1e-6)
    assert first["train/episode_reward_max"] == second["train/episode_reward_max"]
    assert metadata(whole)["torch"]["processes"] == 2 and "processes: 2" in (whole / "config.yaml").read_text()
    assert summary(whole)["status"] == "finished"


def test_stopped_and_killed_it_goes_on_as_if_it_never_was(whole: Path, tmp_path: Path) -> None:
    launcher = torchrun("main.py", *tiny_argv(tmp_path, *FLAGS))
    wait_for_rows(launcher, tmp_path, 20)
    launcher.send_signal(signal.SIGTERM)
    code, out, err = finish(launcher)
    (run_dir,) = run_dirs(tmp_path)
    about = summary(run_dir)
    assert code != 0 and (about["status"], about["exit_code"]) == ("interrupted", 143), (out, err)
    assert about["last"]["step"] == rows(run_dir)[-1]["step"] < 20000

    wrong = resume(run_dir, "--processes", "1")
    assert wrong.code == 2 and "--processes 2" in wrong.err

    again = ["--resume", str(run_dir)]  # without torchrun from here on: it knows that it has two processes
    first = program(again)
    while not (companions := descendants(first.pid)):
        time.sleep(0.01)
    first.kill()  # before they have met
    first.communicate()
    gone_within(10, companions)

    first = program(again)
    wait_for_rows(first, tmp_path, len(rows(run_dir)) + 20)
    companion = pid_of_rank(first, 1)
    os.kill(companion, signal.SIGKILL)
    code, out, err = finish(first)
    about = summary(run_dir)
    assert code == 1 and about["status"] == "failed" and "another process of this run has ended" in about["reason"]
    assert err.splitlines()[-1] == about["reason"] and "Traceback" not in err + (run_dir / "console.log").read_text()

    first = program(again)
    wait_for_rows(first, tmp_path, len(rows(run_dir)) + 20)
    companion = pid_of_rank(first, 1)
    first.kill()
    first.communicate()
    gone_within(10, [companion])
    assert read_summary(run_dir)["status"] == "crashed"

    code, out, err = finish(program(again))
    assert code == 0, err
    same_run(run_dir, whole)


def test_a_process_that_dies_before_the_run_began_ends_it(tmp_path: Path) -> None:
    first = program(tiny_argv(tmp_path / "runs", "--processes", "2"))
    while not (companions := descendants(first.pid)):
        time.sleep(0.01)
    os.kill(companions[0], signal.SIGKILL)
    code, out, err = finish(first)
    assert code == 1 and err == "process 1 of this run ended with -9 before the run began\n"
    assert not (tmp_path / "runs").exists()


def test_an_unequal_share_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refused = train(tmp_path / "runs", "--processes", "2", "--num_envs", "9")
    assert refused.code == 2 and "9 copies cannot be shared equally by 2 processes" in refused.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("environment", [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "one", "WORLD_SIZE": "2"}])
def test_a_place_that_no_run_has_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="RANK"):
        place_in_run(environment | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
    assert place_in_run(environment) == Place()  # left over from something else: no address to meet at


@pytest.mark.parametrize("flags", [("--num_envs", "9"), ("--lr", "fast")])
def test_rank_0_alone_refuses_bad_configuration(flags: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = finish(torchrun("main.py", *tiny_argv(tmp_path / "runs", *flags)))
    assert code != 0 and (out + err).count("bad configuration") == 1 and flags[1] in err, (out, err)
    assert not (tmp_path / "runs").exists()
