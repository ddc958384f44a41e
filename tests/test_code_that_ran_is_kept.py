"""Which code ran: git's facts, the diff and the copy, in every state that a working tree can be in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from navrl import source
from navrl.source import git_diff, git_facts, snapshot
from navrl.tracking.hub import TrackerHub
from navrl.tracking.record import LocalRecord, read_rows

KEY = "wandb_v1_AbCdEf0123456789_xyz"


def git(root, *arguments):
    settings = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=trunk"]
    done = subprocess.run(["git", *settings, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(root, **files):
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init")
    write(root, one="a = 1\n", two="b = 2\n")
    (root / ".gitignore").write_text("ignored*\n")
    git(root, "add", "-A")
    git(root, "commit", "-m", "first")
    return root


@pytest.fixture
def run_dir(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


def disk_full(*_):
    raise OSError("disk full")


def copied(run_dir: Path) -> dict[str, bytes]:
    paths = sorted(path for path in (run_dir / "code").rglob("*") if path.is_file())
    return {str(path.relative_to(run_dir / "code")): path.read_bytes() for path in paths}


def test_a_clean_tree(project):
    facts = git_facts(project)
    assert facts == {
        "git_commit": git(project, "rev-parse", "HEAD"), "git_branch": "trunk", "git_dirty": False, "git_remote": None
    }  # fmt: skip
    assert git_diff(project) == ""


def test_ignored_files_make_nothing_dirty(project):
    write(project, ignored="x\n")
    assert git_facts(project)["git_dirty"] is False and git_diff(project) == ""


def test_the_diff_applied_to_the_commit_gives_the_tree(project, tmp_path):
    write(project, one="a = 3\n", empty="", bare="no newline", unicode="π = 'ä'\n", crlf="x\r\ny\r\n")
    (project / "two.py").unlink()
    (project / "with space.py").write_text("1\n2\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "deep").mkdir()
    write(project / "deep", new="new = 1\n")
    git(project, "add", "deep/new.py")  # staged counts as well
    git(project, "config", "diff.noprefix", "true")  # a user's settings must not matter
    git(project, "config", "status.showUntrackedFiles", "no")
    assert git_facts(project)["git_dirty"] is True
    diff = git_diff(project, {})
    git(project, "config", "--unset", "diff.noprefix")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", str(project), str(clone))
    (tmp_path / "patch").write_bytes(diff.encode())
    git(clone, "apply", str(tmp_path / "patch"))
    tree = lambda root: {  # noqa: E731
        str(path.relative_to(root)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    assert tree(clone) == tree(project)
    assert git(project, "diff", "--cached", "--name-only") == "deep/new.py"  # the index is as it was


def test_only_a_new_file_is_dirty_too(project):
    write(project, new="1\n")
    git(project, "config", "status.showUntrackedFiles", "no")
    assert git_facts(project)["git_dirty"] is True


def test_what_is_not_text_or_too_large_is_named_in_the_diff(project, monkeypatch):
    (project / "binary.dat").write_bytes(b"\0\1")
    (project / "latin.txt").write_bytes(b"\xe4")
    (project / "large.txt").write_text("x" * (source.LARGEST_FILE + 1))
    (project / "link.py").symlink_to("one.py")
    (project / "tls.key").write_text("private")
    diff = git_diff(project, {})
    for name in ("binary.dat", "latin.txt", "large.txt", "link.py", "tls.key"):
        assert f"# new file {name}: not shown" in diff
    assert len(diff) < 1000 and "private" not in diff
    monkeypatch.setattr(source, "LARGEST_DIFF", 100)
    assert "# cut here" in git_diff(project, {}) and len(git_diff(project, {})) < 250


def test_secrets_are_in_neither_diff_nor_remote_nor_copy(project, run_dir):
    write(project, one=f"key = '{KEY}'\n", new=f"key = '{KEY}'\nother = 'environment-secret'\n")
    (project / ".env").write_text("X=1\n")
    git(project, "add", "-N", ".env", "new.py")
    git(project, "remote", "add", "origin", "https://me:hunter2hunter2@git.example/team/project.git")
    environ = {"SOME_TOKEN": "environment-secret"}
    assert git_facts(project, environ)["git_remote"] == "https://***@git.example/team/project.git"
    kept = snapshot(project, run_dir, environ)
    diff, files = (run_dir / "code.diff").read_text(), copied(run_dir)
    assert "+key = '***'" in diff and files["one.py"] == b"key = '***'\n" and b"other = '***'" in files["new.py"]
    for text in (diff, *(content.decode() for content in files.values())):
        assert KEY not in text and "environment-secret" not in text
    assert kept.left_out == {".env": "may hold keys"} and "# not in code: .env (may hold keys)" in diff


def test_a_detached_head_has_a_commit_and_no_branch(project):
    git(project, "checkout", "--detach")
    facts = git_facts(project)
    assert facts["git_branch"] is None and len(facts["git_commit"]) == 40 and "git_note" not in facts


@pytest.mark.parametrize("staged", [False, True])
def test_a_repository_without_commits_says_so(tmp_path, run_dir, staged):
    git(tmp_path, "init")
    write(tmp_path, one="1\n")
    if staged:
        git(tmp_path, "add", "one.py")
    facts = git_facts(tmp_path)
    assert facts["git_commit"] is None and facts["git_note"] == "the git repository has no commits yet"
    assert git_diff(tmp_path) == "# no diff: the git repository has no commits yet\n"
    assert snapshot(tmp_path, run_dir).files == 1
    assert (run_dir / "code.diff").read_text() == "# no diff: the git repository has no commits yet\n"


def test_outside_a_repository(tmp_path):
    write(tmp_path, one="1\n")
    facts = git_facts(tmp_path)
    assert facts.pop("git_note") == "not a git repository"
    assert facts == {"git_commit": None, "git_branch": None, "git_dirty": None, "git_remote": None}
    assert git_diff(tmp_path) == "# no diff: not a git repository\n"


def test_without_git(project, run_dir, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_facts(project)["git_note"] == "git is not installed"
    assert git_diff(project) == "# no diff: git is not installed\n"
    kept = snapshot(project, run_dir)
    assert kept.files == 2 and kept.note == "git is not installed"


def test_inside_a_repository_that_does_not_track_it(project):
    inner = project / "ignored"
    inner.mkdir()
    write(inner, three="3\n")
    assert git_facts(inner)["git_note"] == "the git repository around the project does not track it"
    assert git_facts(inner)["git_commit"] is None


def test_a_part_of_a_larger_repository_is_looked_at_alone(project, run_dir):
    part = project / "part"
    part.mkdir()
    write(part, three="3\n")
    git(project, "add", "-A")
    git(project, "commit", "-m", "second")
    write(project, one="changed\n")
    assert git_facts(part)["git_dirty"] is False and git_diff(part) == ""
    write(part, three="4\n")
    assert "a/three.py" in git_diff(part) and "one.py" not in git_diff(part)
    snapshot(part, run_dir)
    assert copied(run_dir) == {"three.py": b"4\n"}


def test_variables_of_a_git_hook_do_not_lead_elsewhere(project, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    facts = git_facts(project)
    assert len(facts["git_commit"]) == 40


def test_a_git_that_hangs_is_given_up(project, tmp_path, monkeypatch):
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    monkeypatch.setattr(source, "GIT_TIMEOUT", 0.2)
    assert "gave no answer" in git_facts(project)["git_note"]


def test_the_copy_is_what_is_on_disk(project, run_dir):
    write(project, one="edited = 1\n", untracked="x\n")
    (project / "deep").mkdir()
    write(project / "deep", three="3\n")
    (project / "image.bin").write_bytes(b"\0\xff" + KEY.encode())
    (project / "latin.txt").write_bytes(b"caf\xe9\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "large.csv").write_text("x" * (source.LARGEST_FILE + 1))
    (project / "link.py").symlink_to("one.py")
    git(project, "add", "image.bin", "latin.txt", "run.sh", "large.csv", "link.py", "deep")
    (project / "two.py").unlink()
    kept = snapshot(project, run_dir, {})
    assert copied(run_dir) == {
        ".gitignore": b"ignored*\n", "deep/three.py": b"3\n", "latin.txt": b"caf\xe9\n", "one.py": b"edited = 1\n",
        "run.sh": b"#!/bin/sh\n",
    }  # fmt: skip
    assert kept.files == 5 and kept.note == ""
    assert os.access(run_dir / "code" / "run.sh", os.X_OK) and not os.access(run_dir / "code" / "one.py", os.X_OK)
    assert kept.left_out == {
        "image.bin": "binary", "large.csv": "larger than 1048576 bytes", "link.py": "a link", "two.py": "deleted"
    }  # fmt: skip
    diff = (run_dir / "code.diff").read_text()
    assert diff.startswith(git_diff(project, {})) and "+edited = 1" in diff
    for name in ("image.bin (binary)", "large.csv (larger than 1048576 bytes)", "link.py (a link)"):
        assert f"# not in code: {name}\n" in diff
    assert sorted(path.name for path in run_dir.iterdir()) == ["code", "code.diff"]


def test_what_is_beyond_the_limit_of_all_files_is_left_out(project, run_dir, monkeypatch):
    monkeypatch.setattr(source, "LARGEST_COPY", 15)
    assert snapshot(project, run_dir).left_out == {"two.py": "beyond 15 bytes in all"}


def test_without_git_source_files_alone_are_copied(tmp_path, run_dir):
    root = tmp_path / "project"
    for name in (
        "main.py", "configs/a.yaml", "scripts/run.sh", "navrl/x/y.py", "data.csv", "runs/r/old.py", ".cache/c.py",
        "env/pyvenv.cfg", "env/lib/z.py", "navrl/__pycache__/p.py",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    assert snapshot(root, run_dir).note == "not a git repository"
    assert sorted(copied(run_dir)) == ["configs/a.yaml", "main.py", "navrl/x/y.py", "scripts/run.sh"]
    assert (run_dir / "code.diff").read_text() == "# no diff: not a git repository\n"


def test_an_installed_project_copies_its_own_packages_alone(tmp_path, run_dir):
    root = tmp_path / "site-packages"
    for name in ("navrl/a.py", "envs/b.py", "numpy/c.py", "loose.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    assert snapshot(root, run_dir).files == 2


@pytest.mark.parametrize("step", ["_changed", "git_diff"])
def test_a_failed_copy_leaves_nothing_behind_and_the_next_is_whole(project, run_dir, monkeypatch, step):
    with monkeypatch.context() as patched:
        patched.setattr(source, step, disk_full)
        with pytest.raises(OSError, match="disk full"):
            snapshot(project, run_dir)
    assert list(run_dir.iterdir()) == []
    (run_dir / "code").mkdir()  # what a killed process may leave
    (run_dir / "code" / "old.py").write_text("")
    snapshot(project, run_dir)
    assert sorted(copied(run_dir)) == [".gitignore", "one.py", "two.py"]


def test_a_run_whose_code_cannot_be_kept_says_so_and_goes_on(project, run_dir, monkeypatch):
    record = LocalRecord.create(run_dir, "p", "g", "n")
    monkeypatch.setattr(source, "_changed", disk_full)
    hub = TrackerHub(record, {}, science={}, source_root=project, terminal=False)
    hub.log(1, {"a": 1.0})
    assert hub.finish("finished") == []
    assert "the code is not kept: disk full" in (record.run_dir / "console.log").read_text()
    assert len(read_rows(record.run_dir)) == 1


def test_a_resume_keeps_what_its_code_differs_in(project, run_dir):
    """attempt 1: as committed; 2: edited; 3: the same; 4: committed; each is said where it changes something."""
    (project / "image.bin").write_bytes(b"\0")  # named in code.diff alone, which is no change
    git(project, "add", "image.bin")
    git(project, "commit", "-m", "binary")
    commits = [git(project, "rev-parse", "HEAD")]

    def attempt():
        record = LocalRecord.create(run_dir, "p", "g", "n", if_exists="resume")
        metadata = {"segments": [{"git_commit": commit} for commit in commits]}
        TrackerHub(record, {}, science={}, metadata=metadata, source_root=project, terminal=False).finish("failed", 1)
        return record.run_dir

    where = attempt()
    commits.append(commits[-1])
    attempt()
    assert [path.name for path in where.glob("code*.diff")] == ["code.diff"]  # nothing has changed
    write(project, one="a = 3\n")
    commits.append(commits[-1])
    attempt()
    kept = (where / "code-3.diff").read_text()
    assert kept == f"# against commit {commits[-1]}\n" + git_diff(project) and "+a = 3" in kept
    commits.append(commits[-1])
    attempt()
    git(project, "commit", "-am", "edited")
    commits.append(git(project, "rev-parse", "HEAD"))
    attempt()
    assert sorted(path.name for path in where.glob("code*.diff")) == ["code-3.diff", "code-5.diff", "code.diff"]
    assert (where / "code-5.diff").read_text() == f"# against commit {commits[-1]}\n"
    assert "what differs from its commit is in code-3.diff" in (where / "console.log").read_text()
    clone = project.parent / "clone"
    git(project.parent, "clone", str(project), str(clone))
    git(clone, "checkout", commits[2])
    git(clone, "apply", str(where / "code-3.diff"))
    assert (clone / "one.py").read_text() == "a = 3\n"


def test_a_run_that_begins_again_keeps_its_code_anew(tmp_path):
    import shutil

    from whole_runs import resume, train

    flags = ("--total_env_steps", "400", "--num_envs", "16")
    died = train(tmp_path, *flags).run_dir
    shutil.rmtree(died / "checkpoints")
    (died / "code" / "main.py").write_text("what the process that died had\n")
    assert resume(died).code == 0
    assert "def main" in (died / "code" / "main.py").read_text()
