"""Which code ran: git's facts, the diff and the copy, in every state that a working tree can be in."""

from __future__ import annotations

import os
import subprocess
import zipfile

import pytest

from navrl.metrics import source
from navrl.metrics.source import code_snapshot, git_diff, git_facts

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


def test_secrets_are_in_neither_diff_nor_remote_nor_copy(project, tmp_path):
    write(project, one=f"key = '{KEY}'\n", new=f"key = '{KEY}'\nother = 'environment-secret'\n")
    (project / ".env").write_text("X=1\n")
    git(project, "add", "-N", ".env", "new.py")
    git(project, "remote", "add", "origin", "https://me:hunter2hunter2@git.example/team/project.git")
    environ = {"SOME_TOKEN": "environment-secret"}
    assert git_facts(project, environ)["git_remote"] == "https://***@git.example/team/project.git"
    diff = git_diff(project, environ)
    snapshot = code_snapshot(tmp_path / "code.zip", project, environ)
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        copied = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "+key = '***'" in diff and copied["one.py"] == "key = '***'\n" and "other = '***'" in copied["new.py"]
    for text in (diff, *copied.values()):
        assert KEY not in text and "environment-secret" not in text
    assert snapshot.left_out == {".env": "may hold keys"}


def test_a_detached_head_has_a_commit_and_no_branch(project):
    git(project, "checkout", "--detach")
    facts = git_facts(project)
    assert facts["git_branch"] is None and len(facts["git_commit"]) == 40 and "git_note" not in facts


@pytest.mark.parametrize("staged", [False, True])
def test_a_repository_without_commits_says_so(tmp_path, staged):
    git(tmp_path, "init")
    write(tmp_path, one="1\n")
    if staged:
        git(tmp_path, "add", "one.py")
    facts = git_facts(tmp_path)
    assert facts["git_commit"] is None and facts["git_note"] == "the git repository has no commits yet"
    assert git_diff(tmp_path) == "# no diff: the git repository has no commits yet\n"
    assert code_snapshot(tmp_path / "code.zip", tmp_path).files == 1


def test_outside_a_repository(tmp_path):
    write(tmp_path, one="1\n")
    facts = git_facts(tmp_path)
    assert facts.pop("git_note") == "not a git repository"
    assert facts == {"git_commit": None, "git_branch": None, "git_dirty": None, "git_remote": None}
    assert git_diff(tmp_path) == "# no diff: not a git repository\n"


def test_without_git(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_facts(project)["git_note"] == "git is not installed"
    assert git_diff(project) == "# no diff: git is not installed\n"
    snapshot = code_snapshot(tmp_path / "code.zip", project)
    assert snapshot.files == 2 and snapshot.note == "git is not installed"


def test_inside_a_repository_that_does_not_track_it(project):
    inner = project / "ignored"
    inner.mkdir()
    write(inner, three="3\n")
    assert git_facts(inner)["git_note"] == "the git repository around the project does not track it"
    assert git_facts(inner)["git_commit"] is None


def test_a_part_of_a_larger_repository_is_looked_at_alone(project, tmp_path):
    part = project / "part"
    part.mkdir()
    write(part, three="3\n")
    git(project, "add", "-A")
    git(project, "commit", "-m", "second")
    write(project, one="changed\n")
    assert git_facts(part)["git_dirty"] is False and git_diff(part) == ""
    write(part, three="4\n")
    assert "a/three.py" in git_diff(part) and "one.py" not in git_diff(part)
    code_snapshot(tmp_path / "code.zip", part)
    assert zipfile.ZipFile(tmp_path / "code.zip").namelist() == ["three.py"]


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


def test_the_copy_is_what_is_on_disk_and_equal_files_make_an_equal_zip(project, tmp_path):
    write(project, one="edited = 1\n", untracked="x\n")
    (project / "image.bin").write_bytes(b"\0\xff" + KEY.encode())
    (project / "latin.txt").write_bytes(b"caf\xe9\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "large.csv").write_text("x" * (source.LARGEST_FILE + 1))
    (project / "link.py").symlink_to("one.py")
    git(project, "add", "image.bin", "latin.txt", "run.sh", "large.csv", "link.py")
    (project / "two.py").unlink()
    first = code_snapshot(tmp_path / "first.zip", project)
    os.utime(project / "one.py", (1, 1))
    second = code_snapshot(tmp_path / "second.zip", project)
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes() and first == second
    with zipfile.ZipFile(tmp_path / "first.zip") as archive:
        assert archive.namelist() == [".gitignore", "image.bin", "latin.txt", "one.py", "run.sh"]
        assert archive.read("one.py") == b"edited = 1\n"
        assert archive.read("image.bin") == b"\0\xff" + KEY.encode()
        assert archive.read("latin.txt") == b"caf\xe9\n"
        assert archive.getinfo("run.sh").external_attr >> 16 == 0o755
    assert first.left_out == {"large.csv": "larger than 1048576 bytes", "link.py": "a link", "two.py": "deleted"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.zip", "project", "second.zip"]


def test_without_git_source_files_alone_are_copied(tmp_path):
    root = tmp_path / "project"
    for name in (
        "main.py", "configs/a.yaml", "scripts/run.sh", "navrl/x/y.py", "data.csv", "runs/r/old.py", ".cache/c.py",
        "env/pyvenv.cfg", "env/lib/z.py", "navrl/__pycache__/p.py",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    snapshot = code_snapshot(tmp_path / "code.zip", root)
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        assert archive.namelist() == ["configs/a.yaml", "main.py", "navrl/x/y.py", "scripts/run.sh"]
    assert snapshot.note == "not a git repository"


def test_an_installed_project_copies_its_own_packages_alone(tmp_path):
    root = tmp_path / "site-packages"
    for name in ("navrl/a.py", "envs/b.py", "numpy/c.py", "loose.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    assert code_snapshot(tmp_path / "code.zip", root).files == 2


def test_a_failed_copy_leaves_nothing_behind(project, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(source, "_redacted", fail)
    with pytest.raises(OSError, match="disk full"):
        code_snapshot(tmp_path / "code.zip", project)
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
