"""The record under kill -9, concurrency, a full disk and a directory that vanishes."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from navrl.tracking.record import LocalRecord, RunLocked, is_alive, read_rows, read_summary

ROOT = Path(__file__).resolve().parent.parent
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from navrl.tracking.record import LocalRecord
record = LocalRecord.open(sys.argv[2]) if len(sys.argv) > 3 else LocalRecord.create(sys.argv[2], "p", "g", "run")
record.start_clock()
first = (record.last_step or 0) + 1
print(record.run_dir, flush=True)
for step in range(first, first + 10**7):
    record.log(step, {f"k{i}": step * i for i in range(40)})
    if step % 50 == 0:
        record.flush()
        print(step, flush=True)
"""


def writer(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(ROOT), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_twenty_kills_at_random_moments_lose_nothing_that_was_flushed(tmp_path):
    generator = random.Random(7)
    process = writer(tmp_path)
    run_dir = Path(process.stdout.readline().strip())
    for _ in range(20):
        time.sleep(0.02 + 0.15 * generator.random())
        process.send_signal(signal.SIGKILL)
        said = [line.strip() for line in process.stdout if line.strip().isdigit()]
        process.wait()
        steps = [row["step"] for row in read_rows(run_dir)]
        assert steps == list(range(1, len(steps) + 1))
        assert not said or len(steps) >= int(said[-1])
        assert read_summary(run_dir)["status"] == "crashed" and not is_alive(run_dir)
        process = writer(run_dir, "again")
        process.stdout.readline()
    process.kill()
    process.wait()
    assert all(row["k3"] == 3 * row["step"] for row in read_rows(run_dir))


def test_twenty_processes_at_one_moment_get_twenty_directories(tmp_path):
    gate = tmp_path / "gate"
    code = (
        "import sys, time, pathlib\nsys.path.insert(0, sys.argv[1])\nfrom navrl.tracking.record import LocalRecord\n"
        "gate = pathlib.Path(sys.argv[3])\n"
        "while not gate.exists(): time.sleep(0.001)\n"
        "record = LocalRecord.create(sys.argv[2], 'p', 'g', 'run')\nrecord.log(1, {'x': 1})\nrecord.close()\n"
        "print(record.run_dir, record.uid)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(ROOT), str(tmp_path / "runs"), str(gate)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(20)
    ]
    time.sleep(1)
    gate.touch()
    lines = [process.communicate(timeout=30)[0].split() for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert len({line[0] for line in lines}) == 20 and len({line[1] for line in lines}) == 20
    names = {Path(line[0]).name for line in lines}
    assert names == {"run"} | {f"run-{number}" for number in range(2, 21)}
    assert all(len(read_rows(line[0])) == 1 for line in lines)


def test_a_second_process_is_refused_and_a_dead_one_holds_no_lock(tmp_path):
    process = writer(tmp_path)
    run_dir = process.stdout.readline().strip()
    with pytest.raises(RunLocked, match=f"pid {process.pid}"):
        LocalRecord.open(run_dir)
    assert read_summary(run_dir)["status"] == "running"
    process.kill()
    process.wait()
    LocalRecord.open(run_dir).close()


def test_a_forked_worker_that_outlives_the_run_holds_no_lock(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent says so
        os._exit(0)
    try:
        assert is_alive(record.run_dir)
        record.close()
        LocalRecord.open(record.run_dir).close()
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)


FULL = """
import json, os, resource, signal, sys
sys.path.insert(0, sys.argv[1])
from navrl.tracking.record import LocalRecord
record = LocalRecord.create(sys.argv[2], "p", "g", "run")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
said, was_full = [], []
for step in range(1, 401):
    if step == 100:      # a file may grow no further than this one has, and a little: the next row is cut in its middle
        size = os.path.getsize(record.run_dir / "metrics.jsonl")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, hard))
    if step == 300:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    record.log(step, {"x": step, "pad": 0.123456789})
    said += record.warnings()
    was_full.append(record.full)
lost_on_the_way = record.lost
record.close()
print(json.dumps({"run_dir": str(record.run_dir), "said": said, "full": [was_full[50], was_full[200], was_full[-1]],
                  "lost": record.lost}))
"""


def test_a_full_disk_warns_once_and_rows_follow_when_there_is_space(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(ROOT), str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["full"] == [False, True, False]
    assert sum("takes no more rows" in line for line in result["said"]) == 1
    assert sum("can be written again" in line for line in result["said"]) == 1
    assert result["lost"] == 0
    assert [row["step"] for row in read_rows(result["run_dir"])] == list(range(1, 401))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_disk_that_is_really_full_loses_no_row_once_it_has_space(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        record = LocalRecord.create(disk, "p", "g", "run")
        filler = disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        for step in range(1, 301):
            record.log(step, {"x": step})
        record.update_summary(best={"x": 1})
        assert record.full and record.lost > 0
        filler.unlink()
        record.log(301, {"x": 301})
        record.close()
        assert record.lost == 0
        assert [row["step"] for row in read_rows(record.run_dir)] == list(range(1, 302))
        assert read_summary(record.run_dir)["best"] == {"x": 1}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_run_directory_that_is_deleted_under_us_comes_back_whole(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    for step in range(1, 51):
        record.log(step, {"x": step})
    record.flush()
    shutil.rmtree(record.run_dir)
    for step in range(51, 61):
        record.log(step, {"x": step})
    record.close()
    assert [row["step"] for row in read_rows(record.run_dir)] == list(range(1, 61))


def test_no_file_stays_open_after_fifty_records(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        record = LocalRecord.create(tmp_path, "p", "g", "run")
        record.log(1, {"x": 1})
        record.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 50
