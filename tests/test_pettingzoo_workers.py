"""Workers are hard to kill and never left behind: each fault is one EnvironmentFault that says who, when and why."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from envs.base import EnvironmentFault, TaskError
from envs.pettingzoo import PettingZooEnv
from test_pettingzoo_tasks import build

ZERO = torch.zeros(2, 2, dtype=torch.int64)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int], seconds: float = 10.0) -> None:
    assert pids
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, f"still running: {[p for p in pids if alive(p)]}"
        time.sleep(0.02)


def run_to_fault(env: PettingZooEnv) -> str:
    """Step until the fault, which must come at step 3, and check that nothing of the environment is left."""
    pids = env.worker_pids()
    env.reset(0)
    env.step(ZERO)
    env.step(ZERO)
    with pytest.raises(EnvironmentFault) as caught:
        env.step(ZERO)
    if pids:
        wait_until_gone(pids, 1.0)
    with pytest.raises(EnvironmentFault, match="no longer runs"):
        env.reset(0)
    env.close()
    env.close()
    return str(caught.value)


WRONG = {
    "shape": r"agent agent_1, step 3 of episode 0: observation has shape \(2,\), its space says \(3,\)",
    "dtype": "agent agent_1, step 3 of episode 0: observation has dtype complex64",
    "text": "agent agent_1, step 3 of episode 0: observation has dtype <U1",
    "nan observation": "agent agent_1, step 3 of episode 0: observation is not finite",
    "nan reward": "agent agent_1, step 3 of episode 0: reward is not finite",
    "vector reward": "agent agent_1, step 3 of episode 0: reward array.* is not a number",
    "text reward": "agent agent_1, step 3 of episode 0: reward 'lots' is not a number",
    "agent dies": "agent agent_1, step 3 of episode 0: left the episode while others go on",
    "agent vanishes": "agent agent_1, step 3 of episode 0: is gone from the running episode",
    "agent appears": "agent agent_2, step 3 of episode 0: appeared in the running episode",
    "no observation": "agent agent_1, step 3 of episode 0: no observation was returned",
    "no reward": "agent agent_1, step 3 of episode 0: no reward was returned",
    "no flag": "step 3 of episode 0: terminations or truncations lack an agent: KeyError: 'agent_1'",
    "raise": r"step 3 of episode 0: step raised KeyError: 'a bug in the task'\n(.|\n)*toy_envs.py",
    "exit": "step 3 of episode 0: step raised SystemExit: 3",
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_value_names_copy_agent_and_step(fault: str):
    message = run_to_fault(build("toy_envs", "faulty", fault=fault, num_workers=0))
    assert message.startswith("toy_envs:faulty, copy 0, ")
    assert re.search(WRONG[fault], message), message


@pytest.mark.parametrize("fault", ["nan reward", "raise"])
def test_a_fault_in_a_worker_reads_the_same(fault: str):
    message = run_to_fault(build("toy_envs", "faulty", fault=fault, num_workers=1))
    assert message == run_to_fault(build("toy_envs", "faulty", fault=fault, num_workers=0))


@pytest.mark.parametrize("fault, how", [("killed", "was killed by SIGKILL"), ("exit now", "ended with exit code 7")])
def test_a_worker_that_dies_is_a_fault(fault: str, how: str):
    message = run_to_fault(build("toy_envs", "faulty", fault=fault, num_workers=2))
    expected = [f"toy_envs:faulty, copy {i}, step 3 of episode 0: worker process {i} {how}" for i in (0, 1)]
    assert message in expected  # both die; either may be seen first


@pytest.mark.parametrize("fault", ["hang", "busy"])
def test_a_call_that_hangs_is_a_fault_after_the_timeout(fault: str):
    message = run_to_fault(build("toy_envs", "faulty", fault=fault, num_workers=1, timeout=0.5))
    assert message == "toy_envs:faulty, copy 0, step 3 of episode 0: no answer within 0.5 s (worker_timeout)"


def test_slow_copies_that_make_progress_are_not_taken_for_hung():
    env = build("toy_envs", "slow", seconds=0.2, num_envs=6, num_workers=1, timeout=0.8)
    env.reset(0)
    env.step(ZERO[:1].expand(6, 2))  # 1.2 s, in pieces of 0.2 s
    env.close()


def test_a_worker_killed_between_steps_is_a_fault():
    env = build("toy_envs", "counter", num_workers=2)
    pids = env.worker_pids()
    env.reset(0)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match="copy 1: worker process 1 was killed by SIGKILL"):
        for _ in range(2):  # the first command may still be written before the kernel has ended the process
            env.step(ZERO)
    wait_until_gone(pids, 1.0)


def test_workers_start_without_torch():
    build("toy_envs", "without_torch", num_workers=1).close()


def test_close_ends_the_workers_even_where_a_task_does_not_close(monkeypatch: pytest.MonkeyPatch):
    env = build("toy_envs", "counter", num_workers=2)
    pids = env.worker_pids()
    assert len(pids) == 2 and all(map(alive, pids))
    env.close()
    env.close()
    wait_until_gone(pids, 0.5)
    monkeypatch.setattr("envs.workers._CLOSE_SECONDS", 0.3)
    env = build("toy_envs", "deaf", num_workers=1)
    pids = env.worker_pids()
    env.close()
    wait_until_gone(pids, 0.5)


def test_a_dropped_environment_takes_its_workers_along():
    env = build("toy_envs", "counter", num_workers=2)
    pids = env.worker_pids()
    del env
    gc.collect()
    wait_until_gone(pids, 0.5)


def test_nothing_is_left_open():
    build("toy_envs", "counter", num_workers=1).close()
    before = len(os.listdir("/proc/self/fd"))
    env = build("toy_envs", "counter", num_workers=2)
    env.reset(0)
    env.close()
    del env
    with pytest.raises(TaskError, match="no luck"):
        build("toy_envs", "broken_constructor", num_workers=2)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# Without torch, which takes long to import and has no part in this
GROUP = """
from envs.workers import WorkerGroup
group = WorkerGroup("toy_envs", {function!r}, {kwargs!r}, 2, 2, 60.0)
arrays = group.attach("float32", True)
arrays["actions"][...] = 0
group.call("reset", 0, 0)
group.call("step")
group.call("step")
print(*group.pids(), flush=True)
"""
ENV = """
import torch
from test_pettingzoo_tasks import build
env = build("toy_envs", {function!r}, num_workers=2, **{kwargs!r})
env.reset(0)
env.step(torch.zeros(2, 2, dtype=torch.int64))
print(*env.worker_pids(), flush=True)
"""


def parent(start: str, end: str, function: str = "counter", **kwargs: object) -> tuple[subprocess.Popen, list[int]]:
    here = Path(__file__).parent
    path = f"import os, signal, sys, time\nsys.path[:0] = {[str(here), str(here.parent)]!r}\n"
    code = path + start.format(function=function, kwargs=kwargs) + end
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    return process, list(map(int, process.stdout.readline().split()))


def end_with(process: subprocess.Popen, pids: list[int]) -> None:
    """Kill the parent; its workers must go within ten seconds (what is left is ended, so that no failure lingers)."""
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()
    try:
        wait_until_gone(pids)
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_with_a_parent_that_is_killed(busy: bool):
    """Idle ones and ones amid a call that never ends."""
    if busy:
        process, pids = parent(GROUP, "group.call('step')", "faulty", fault="busy")
        time.sleep(0.3)  # into the third step, which does not end
    else:
        process, pids = parent(GROUP, "time.sleep(1000)")
    assert len(pids) == 2 and all(map(alive, pids))
    end_with(process, pids)


def test_workers_end_with_a_killed_parent_whose_fork_lives_on():
    process, pids = parent(GROUP, "child = os.fork()\nif child:\n    print(child, flush=True)\ntime.sleep(20)")
    child = int(process.stdout.readline())
    assert child > 1
    try:
        end_with(process, pids)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", ["", "raise KeyError('x')", "env.close()"])
def test_workers_end_with_a_parent_that_ends_and_nothing_is_said(end: str):
    process, pids = parent(ENV, end)
    _, errors = process.communicate()
    wait_until_gone(pids, 1.0)
    lines = errors.splitlines()
    assert (lines[-1] == "KeyError: 'x'" and len(lines) <= 5) if "raise" in end else errors == "", errors


def test_signals_to_the_whole_group_are_the_parents_to_handle():
    """Workers outlive Ctrl-C and a batch system's warning until the parent closes them."""
    end = """
for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(name, lambda *_: None)
    os.killpg(0, name)
time.sleep(0.2)
group.call("step")
group.close()
print("went on", flush=True)
"""
    process, pids = parent(GROUP, end, "noisy")  # what a task prints goes to stderr
    out, errors = process.communicate()
    assert out == "went on\n" and process.returncode == 0 and errors.count("noise") == 4, errors
    wait_until_gone(pids, 1.0)


def test_an_interrupted_step_ends_the_workers_rather_than_mixing_answers_up():
    env = build("toy_envs", "slow", seconds=0.5, num_workers=1)
    pids = env.worker_pids()
    env.reset(0)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            env.step(ZERO)
    finally:
        signal.signal(signal.SIGALRM, old)
    wait_until_gone(pids, 1.0)
    with pytest.raises(EnvironmentFault, match="step was interrupted by KeyboardInterrupt"):
        env.step(ZERO)
