"""`scripts/backup.sh`: under a final name there is a whole, verified run or what was there before; never anything else."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_main_refuses_bad_input import LEAST
from wandb_stand_in import free_port
from whole_runs import ROOT, resume, train

from navrl.backup import MANIFEST
from navrl.tracking.record import LOCK, RunLock

SCRIPT = str(ROOT / "scripts" / "backup.sh")
ODD = ["with space", "🙂 工厂", "new\nline", "back\\slash", "-dash", "it's", "$(echo x)`y`"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr("navrl.tracking.hub.TrackerHub._keep_code", lambda hub, root: None)
    yield train(tmp_path_factory.mktemp("original"), *LEAST).run_dir
    patch.undo()


@pytest.fixture
def runs(original, tmp_path):
    """A root of runs with one run, `NAVRL/group/run`."""
    run_dir = tmp_path / "runs" / "NAVRL" / "group" / "run"
    shutil.copytree(original, run_dir)
    (tmp_path / "disk").mkdir()
    return tmp_path / "runs"


def backup(source, dest, **environ):
    return subprocess.run([SCRIPT, str(source), str(dest)], text=True, capture_output=True, timeout=120,
                          stdin=subprocess.DEVNULL, env=os.environ | environ)  # fmt: skip


def tree(directory):
    """{path: content, or target of a link} of a run; what a backup leaves out and adds aside."""
    found = {}
    for path in sorted(Path(directory).rglob("*")):
        name = str(path.relative_to(directory))
        if path.name in (LOCK, MANIFEST):
            continue
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def verifies(copy):
    return subprocess.run(["sha256sum", "-c", MANIFEST], cwd=copy, capture_output=True).returncode == 0


def hidden(directory):
    return [path for path in Path(directory).rglob(".*") if ".partial-" in path.name or ".old-" in path.name]


def test_every_file_of_runs_with_any_name_arrives_once(runs, tmp_path):
    run = runs / "NAVRL" / "group" / "run"
    for name in ODD:
        shutil.copytree(run, run.with_name(name))
        (run.with_name(name) / "media" / f"{name}.txt").write_text(name)
    (run / "media" / "latest").symlink_to("episode_0.gif")
    (run / "media" / "empty").mkdir()
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert f"{len(ODD) + 1} copied, 0 skipped, 0 failed" in done.stdout
    for name in [*ODD, "run"]:
        copy = tmp_path / "disk" / "NAVRL" / "group" / name
        assert tree(copy) == tree(run.with_name(name)) and verifies(copy), name
    before = {path: path.lstat().st_mtime_ns for path in (tmp_path / "disk").rglob("*")}
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 0 and done.stdout.count("already there, verified") == len(ODD) + 1
    assert before == {path: path.lstat().st_mtime_ns for path in (tmp_path / "disk").rglob("*")}


def test_a_run_that_is_still_written_is_skipped(runs, tmp_path):
    run = runs / "NAVRL" / "group" / "run"
    (run / "tracking" / "wandb").mkdir(parents=True, exist_ok=True)
    for path, words in ((run / LOCK, "still running"), (run / "tracking/wandb" / LOCK, "still being published to wandb")):
        lock = RunLock(path)
        try:
            done = backup(runs, tmp_path / "disk")
        finally:
            lock.release()
        assert done.returncode == 0 and f"skipped NAVRL/group/run: {words}" in done.stdout
        assert list((tmp_path / "disk").iterdir()) == []
    assert "1 copied" in backup(runs / "NAVRL", tmp_path / "disk").stdout  # a part of the root, too
    assert verifies(tmp_path / "disk" / "group" / "run")


def test_a_damaged_checkpoint_replaces_no_good_copy(runs, tmp_path):
    run = runs / "NAVRL" / "group" / "run"
    shutil.copytree(run, run.with_name("second"))
    copy = tmp_path / "disk" / "NAVRL" / "group"
    assert backup(runs, tmp_path / "disk").returncode == 0
    checkpoint = next((run / "checkpoints").glob("*.pt"))
    whole = checkpoint.read_bytes()
    for damage, words in (
        (lambda: checkpoint.write_bytes(whole[:-1] + b"x"), "is not what was recorded"),
        (checkpoint.unlink, "is gone"),
    ):
        damage()
        done = backup(runs, tmp_path / "disk")
        assert done.returncode == 1 and f"checkpoints/{checkpoint.name} {words}" in done.stderr
        assert "0 copied, 1 skipped, 1 failed" in done.stdout
        assert verifies(copy / "run") and (copy / "run" / "checkpoints" / checkpoint.name).read_bytes() == whole


def test_a_copy_that_rots_is_made_anew(runs, tmp_path):
    assert backup(runs, tmp_path / "disk").returncode == 0
    copy = tmp_path / "disk" / "NAVRL" / "group" / "run"
    (copy / "metrics.jsonl").write_text("{}\n")
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 0 and "the copy that was there was damaged" in done.stdout
    assert verifies(copy) and tree(copy) == tree(runs / "NAVRL" / "group" / "run") and not hidden(tmp_path / "disk")


def test_a_run_that_went_on_is_replaced_and_another_run_of_its_name_never(runs, original, tmp_path, no_code_copy):
    run, copy = runs / "NAVRL" / "group" / "run", tmp_path / "disk" / "NAVRL" / "group" / "run"
    assert backup(runs, tmp_path / "disk").returncode == 0
    assert resume(run, "--total_env_steps", "40").code == 0
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 0 and "it has gone on since it was copied" in done.stdout
    assert tree(copy) == tree(run) and not hidden(tmp_path / "disk")
    shutil.rmtree(run)
    shutil.copytree(original, run)  # an earlier state: its journal is a beginning of the copy's
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 1 and "another run under this name" in done.stderr
    other = train(tmp_path / "other", *LEAST, "--seed", "7").run_dir
    shutil.rmtree(run)
    shutil.copytree(other, run)
    before = tree(copy)
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 1 and "another run under this name" in done.stderr and tree(copy) == before
    shutil.rmtree(copy)
    copy.mkdir()
    (copy / "mine.txt").write_text("what a person put there")
    assert backup(runs, tmp_path / "disk").returncode == 1 and (copy / "mine.txt").exists()


def test_kills_at_random_moments_leave_nothing_half_under_a_final_name(runs, tmp_path):
    run, disk = runs / "NAVRL" / "group" / "run", tmp_path / "disk"
    for i in range(8):
        (run / "media" / f"big{i}.bin").write_bytes(os.urandom(4 << 20))
    copy, generator, cut = disk / "NAVRL" / "group" / "run", random.Random(3), 0
    for attempt in range(8):
        process = subprocess.Popen([SCRIPT, str(runs), str(disk)], start_new_session=True, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        deadline = time.monotonic() + 30
        while not hidden(disk) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(0.15 * generator.random())
        number = signal.SIGTERM if attempt % 2 else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(timeout=30)
        if copy.exists():
            assert verifies(copy) and tree(copy) == tree(run)
            shutil.rmtree(copy)
        else:
            cut += 1
    assert cut > 0
    done = backup(runs, disk)
    assert done.returncode == 0 and verifies(copy) and tree(copy) == tree(run)


def test_leftovers_of_killed_copies_go_after_a_day(runs, tmp_path):
    group = tmp_path / "disk" / "NAVRL" / "group"
    for name in (".run.partial-0123abcd", ".run.old-0123abcd", ".run.partial-fresh000", ".mine"):
        (group / name).mkdir(parents=True)
    two_days_ago = time.time() - 2 * 86400
    for name in (".run.partial-0123abcd", ".run.old-0123abcd", ".mine"):
        os.utime(group / name, (two_days_ago, two_days_ago))
    assert backup(runs, tmp_path / "disk").returncode == 0
    assert sorted(path.name for path in group.iterdir()) == [".mine", ".run.partial-fresh000", "run"]


def test_two_at_once_leave_one_whole_copy(runs, tmp_path):
    (runs / "NAVRL" / "group" / "run" / "media" / "big.bin").write_bytes(os.urandom(8 << 20))
    both = [subprocess.Popen([SCRIPT, str(runs), str(tmp_path / "disk")], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for _ in range(2)]  # fmt: skip
    said = [process.communicate(timeout=60)[1] for process in both]
    assert 0 in [process.returncode for process in both], said
    copy = tmp_path / "disk" / "NAVRL" / "group" / "run"
    assert verifies(copy) and tree(copy) == tree(runs / "NAVRL" / "group" / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_full_or_read_only_is_said(runs, tmp_path):
    disk = tmp_path / "disk"
    (runs / "NAVRL" / "group" / "run" / "media" / "big.bin").write_bytes(os.urandom(4 << 20))
    for options, words in (("size=2m", "No space left"), ("size=20m,ro", "Read-only")):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True).returncode:
            pytest.skip("tmpfs cannot be mounted here")
        try:
            done = backup(runs, disk)
            assert done.returncode == 1 and words in done.stderr and "0 copied, 0 skipped, 1 failed" in done.stdout
            assert not [path for path in disk.rglob("*") if path.is_file()] and not hidden(disk)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    ("source", "dest", "words"),
    [
        ("runs", "no/such/disk", "is no directory; make it first"),
        ("runs", "runs", "is inside"),
        ("runs", "runs/NAVRL", "is inside"),
        ("none", "disk", "RUNS_DIR: "),
        ("disk", "runs", "holds no runs"),
        ("runs", "-oProxyCommand=x:y", "names no host"),
        ("runs", ":disk", "names no host"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(runs, tmp_path, source, dest, words):
    before = tree(tmp_path)
    where = dest if ":" in dest else tmp_path / dest
    done = subprocess.run([SCRIPT, "--", str(tmp_path / source), str(where)], text=True, capture_output=True)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert tree(tmp_path) == before


# ---- another host


@pytest.fixture
def host(tmp_path):
    """A real sshd on loopback; the variables with which `ssh backup-host` reaches it, and nobody else is asked."""
    directory = tmp_path / "sshd"
    directory.mkdir(mode=0o755)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    shutil.copy(directory / "user.pub", directory / "authorized")
    port = free_port()
    (directory / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory / 'host'}\nAuthorizedKeysFile "
        f"{directory / 'authorized'}\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n"
    )
    known = (directory / "host.pub").read_text()
    (directory / "known").write_text(f"[127.0.0.1]:{port} {known}")
    (directory / "config").write_text(
        f"Host backup-host\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentityFile "
        f"{directory / 'user'}\n UserKnownHostsFile {directory / 'known'}\n IdentitiesOnly yes\n"
    )
    bin_ = directory / "bin"  # ssh with this configuration: it reads none from $HOME
    bin_.mkdir()
    (bin_ / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {directory / "config"} "$@"\n')
    (bin_ / "ssh").chmod(0o755)
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    log = open(directory / "log", "wb")
    process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(directory / "sshd_config")], stderr=log)
    environ = {"PATH": f"{bin_}:{os.environ['PATH']}"}
    deadline = time.monotonic() + 20
    while subprocess.run(["ssh", "backup-host", "true"], env=os.environ | environ, capture_output=True).returncode:
        assert time.monotonic() < deadline and process.poll() is None, (directory / "log").read_text()
        time.sleep(0.1)
    yield environ
    process.kill()
    process.wait()


@pytest.mark.requires_service("sshd")
def test_another_host_gets_the_same(runs, tmp_path, host):
    run, far = runs / "NAVRL" / "group" / "run", tmp_path / "far 'away' $HOME"
    far.mkdir()
    shutil.copytree(run, run.with_name(ODD[1]))
    shutil.copytree(run, run.with_name("new\nline, it's"))
    dest = f"backup-host:{far}"
    done = backup(runs, dest, **host)
    assert done.returncode == 0 and "3 copied, 0 skipped, 0 failed" in done.stdout, done.stderr
    for name in ("run", ODD[1], "new\nline, it's"):
        copy = far / "NAVRL" / "group" / name
        assert tree(copy) == tree(run.with_name(name)) and verifies(copy)
    assert "0 copied, 3 skipped, 0 failed" in backup(runs, dest, **host).stdout
    done = backup(runs, f"backup-host:{tmp_path}/none", **host)
    assert done.returncode == 1 and "none" in done.stderr and "nothing was copied" in done.stderr
    done = backup(runs, f"no-such-host.invalid:{far}", **host)
    assert done.returncode == 1 and "no-such-host.invalid" in done.stderr and done.stdout == ""


def test_what_is_recorded_of_checkpoints_must_be_readable(runs, tmp_path):
    index = runs / "NAVRL" / "group" / "run" / "checkpoints" / "index.json"
    assert json.loads(index.read_text())["checkpoints"]
    index.write_text("{")
    done = backup(runs, tmp_path / "disk")
    assert done.returncode == 1 and "what it records of its checkpoints is damaged" in done.stderr
