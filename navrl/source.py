"""Which code ran: git's facts, what differs from the commit, and a copy of the files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from navrl.files import replacing, write_text
from navrl.redaction import hide_matches, redact

LARGEST_FILE = 2**20  # bytes of one file in the copy or of one new file in the diff
LARGEST_COPY = 20 * 2**20  # bytes of all copied files
LARGEST_DIFF = 8 * 2**20  # characters
GIT_TIMEOUT = 10.0  # seconds

_SOURCE_SUFFIXES = {".py", ".yaml", ".yml", ".sh"}
_NOT_SOURCE = {"__pycache__", "node_modules", "build", "dist", "runs", "wandb", "mlruns", "swanlog", "venv"}
_PACKAGES = ("envs", "navrl", "runners")  # what of site-packages is ours, where the project is installed
_SECRET_FILES = {".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", "credentials", "id_rsa", "id_ed25519"}
_SECRET_SUFFIXES = {".pem", ".key", ".p12", ".pfx"}


class GitUnknown(Exception):
    """Git has no answer; the message is one line that says why."""


class Snapshot(NamedTuple):
    """files: how many were copied. left_out: name -> why. note: why not from git, or ""."""

    files: int
    left_out: dict[str, str]
    note: str


def project_root() -> Path:
    """The directory that holds ``navrl``."""
    return Path(__file__).resolve().parents[1]


def git_facts(root: Path, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """``git_commit``, ``git_branch``, ``git_dirty``, ``git_remote`` of the project at ``root``; None where unknown.

    Dirty: a tracked file below ``root`` differs from the commit, or a new one is not ignored. Branch is None on a
    detached head, remote (redacted) where there is none. ``git_note`` is there only to say why facts are unknown.
    """
    facts: dict[str, Any] = {"git_commit": None, "git_branch": None, "git_dirty": None, "git_remote": None}
    try:
        _require_project(root)
        facts["git_branch"] = _answer(root, "symbolic-ref", "--short", "-q", "HEAD")
        remote = _answer(root, "config", "--get", "remote.origin.url")
        facts["git_remote"] = redact(remote, environ) if remote else None
        facts["git_dirty"] = bool(_git(root, "status", "--porcelain", "--untracked-files=normal", "--", ".").strip())
        facts["git_commit"] = _answer(root, "rev-parse", "--verify", "-q", "HEAD")
        if facts["git_commit"] is None:
            facts["git_note"] = "the git repository has no commits yet"
    except GitUnknown as reason:
        facts["git_note"] = str(reason)
    return facts


def git_diff(root: Path, environ: Mapping[str, str] | None = None) -> str:
    """What differs from the commit below ``root``, new files included, as ``git apply`` takes it; secrets redacted.

    Empty where nothing differs. Where git has no answer, one line starting with "# " says why. Binary files and
    new files above 1 MiB are named and not shown; more than 8 MiB is cut and says so.
    """
    try:
        _require_project(root)
        if _answer(root, "rev-parse", "--verify", "-q", "HEAD") is None:
            return "# no diff: the git repository has no commits yet\n"
        # Spelled out, for a user's git settings may say otherwise.
        flags = ("--no-color", "--no-ext-diff", "--no-textconv", "--relative", "--src-prefix=a/", "--dst-prefix=b/")
        diff = _git(root, "diff", *flags, "--abbrev=12", "HEAD", "--", ".")
        new = _names(_git(root, "ls-files", "-z", "--others", "--exclude-standard"))
    except GitUnknown as reason:
        return f"# no diff: {reason}\n"
    parts = [diff]
    for name in new:
        if sum(map(len, parts)) > LARGEST_DIFF:
            break
        parts.append(_new_file(root, name))
    left = len(new) - len(parts) + 1
    diff = "".join(parts)
    if len(diff) > LARGEST_DIFF:
        diff = f"{diff[:LARGEST_DIFF]}\n# cut here after {LARGEST_DIFF} characters; {left} new files not looked at\n"
    return redact(diff, environ)


def snapshot(root: Path, run_dir: Path, environ: Mapping[str, str] | None = None) -> Snapshot:
    """Keep the code below ``root`` in ``run_dir``: ``code/``, then ``code.diff`` (``git_diff``); secrets redacted.

    Copied are, as they are on disk, the text files that git tracks; without git all Python, YAML and shell files.
    What is binary, a link, above 1 MiB, beyond 20 MiB in all, or a file that by its name holds keys is left out and
    named in ``code.diff``, whose presence says that all is there. OSError where the directory takes no more; then
    neither is there.
    """
    try:
        _require_project(root)
        names, note = _names(_git(root, "ls-files", "-z", "--cached")), ""
    except GitUnknown as reason:
        names, note = _source_files(root), str(reason)
    code, partial = run_dir / "code", run_dir / ".code.tmp"
    for remains in (code, partial):  # of a process that died before it wrote code.diff
        shutil.rmtree(remains, ignore_errors=True)
    files, total, left_out = 0, 0, {}
    try:
        partial.mkdir()
        for name in sorted(set(names)):
            path, target = root / name, partial / name
            why = _why_not(path) or ("its name is filtered" if hide_matches(name) != name else "")
            content = b"" if why else path.read_bytes()
            if b"\0" in content:
                why = "binary"
            elif total + len(content) > LARGEST_COPY:
                why = f"beyond {LARGEST_COPY} bytes in all"
            if why:
                left_out[name] = why
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_changed(content, lambda text: redact(text, environ)))
            target.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
            files, total = files + 1, total + len(content)
        os.replace(partial, code)
        missing = "".join(f"# not in code: {name} ({why})\n" for name, why in left_out.items() if why != "deleted")
        write_text(run_dir / "code.diff", git_diff(root, environ) + missing)
    except BaseException:
        for remains in (code, partial):
            shutil.rmtree(remains, ignore_errors=True)
        raise
    return Snapshot(files, left_out, note)


def keep_changes(
    root: Path, run_dir: Path, number: int, commits: Sequence[str | None], environ: Mapping[str, str] | None = None
) -> str:
    """Write ``code-{number}.diff`` where a run is continued by other code than it had; returns its name, or "".

    commits: of the stretch before and of this one. The diff is against the latter, which its first line names.
    """
    diff = git_diff(root, environ)
    kept = max(run_dir.glob("code*.diff"), key=lambda path: int("0" + path.stem.removeprefix("code").lstrip("-")))
    lines = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    before = "".join(line for line in lines if not line.startswith(("# not in code: ", "# against commit ")))
    if diff == before and len(set(commits)) < 2:
        return ""
    name = f"code-{number}.diff"
    write_text(run_dir / name, f"# against commit {commits[-1] if commits else None}\n{diff}")
    return name


def _why_not(path: Path) -> str:
    """Why a file is not copied, or ""."""
    if path.is_symlink():
        return "a link"
    if not path.is_file():
        return "deleted" if not path.exists() else "not a file"
    secret = path.name in _SECRET_FILES or path.suffix in _SECRET_SUFFIXES or path.name.startswith(".env")
    if secret:
        return "may hold keys"
    if path.stat().st_size > LARGEST_FILE:
        return f"larger than {LARGEST_FILE} bytes"
    return "" if os.access(path, os.R_OK) else "not readable"


def filter_kept(run_dir: Path) -> None:
    """Hide what ``log_filter`` matches in the code that ``snapshot`` kept, where that was done without it.

    Raises OSError.
    """
    for path in [*run_dir.glob("code*.diff"), *(run_dir / "code").rglob("*")]:
        if path.is_file():
            content = path.read_bytes()
            hidden = _changed(content, hide_matches)
            if hide_matches(str(path.relative_to(run_dir))) != str(path.relative_to(run_dir)):
                path.unlink()
            elif hidden != content:
                with replacing(path) as temporary:
                    temporary.write_bytes(hidden)
                    shutil.copymode(path, temporary)


def _changed(content: bytes, change: Callable[[str], str]) -> bytes:
    try:
        return change(content.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:  # Latin-1 maps every byte to one character and back
        return change(content.decode("latin-1")).encode("latin-1")


def _source_files(root: Path) -> list[str]:
    """Names of source files below ``root``, caches, virtual environments and runs left aside."""
    tops = [root]
    if root.name in ("site-packages", "dist-packages"):
        tops = [root / package for package in _PACKAGES]
    found: list[str] = []
    for top in tops:
        for directory, below, files in os.walk(top):
            below[:] = [
                name
                for name in below
                if name not in _NOT_SOURCE
                and not name.startswith(".")
                and not os.path.exists(os.path.join(directory, name, "pyvenv.cfg"))
            ]
            found += [os.path.relpath(os.path.join(directory, name), root) for name in files]
    return [name for name in found if Path(name).suffix in _SOURCE_SUFFIXES]


def _new_file(root: Path, name: str) -> str:
    """A file that git does not know yet, as a diff that makes it."""
    path = root / name
    why = _why_not(path) or ("odd name" if any(c in '"\\' or c < " " for c in name) else "")
    content = b"" if why else path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        why = "binary"
    if why or "\0" in text:
        return f"# new file {name}: not shown, {why or 'binary'}\n"
    mode = "100755" if os.access(path, os.X_OK) else "100644"
    head = f"diff --git a/{name} b/{name}\nnew file mode {mode}\n"
    if not text:
        return head
    lines = text.split("\n")
    tail = "" if lines[-1] == "" else "\\ No newline at end of file\n"
    lines = lines if tail else lines[:-1]
    body = "".join(f"+{line}\n" for line in lines)
    span = "+1" if len(lines) == 1 else f"+1,{len(lines)}"
    mark = "\t" if " " in name else ""  # as git does: it ends a name that holds spaces
    return f"{head}--- /dev/null\n+++ b/{name}{mark}\n@@ -0,0 {span} @@\n{body}{tail}"


def _require_project(root: Path) -> None:
    """GitUnknown unless ``root`` lies in a repository that tracks something of it."""
    if not _git(root, "ls-files", "-z", "--cached", "--", ".").strip("\0"):
        if _answer(root, "rev-parse", "--verify", "-q", "HEAD") is None:
            raise GitUnknown("the git repository has no commits yet")
        raise GitUnknown("the git repository around the project does not track it")


def _names(listing: str) -> list[str]:
    return [name for name in listing.split("\0") if name]


def _answer(root: Path, *arguments: str) -> str | None:
    """Git's one-line answer, or None where it has none."""
    try:
        return _git(root, *arguments).strip() or None
    except GitUnknown:
        return None


def _git(root: Path, *arguments: str) -> str:
    # Variables such as GIT_DIR (set inside hooks) would point git at another repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ.update(LC_ALL="C", GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0")
    command = ["git", "-c", "core.quotepath=off", *arguments]
    try:
        done = subprocess.run(
            command, cwd=root, env=environ, capture_output=True, stdin=subprocess.DEVNULL, timeout=GIT_TIMEOUT,
            start_new_session=True,  # a terminal's Ctrl-C is for the run, which ends in order
        )
    except FileNotFoundError:
        raise GitUnknown("git is not installed" if root.is_dir() else f"{root.name}: no such directory") from None
    except subprocess.TimeoutExpired:
        raise GitUnknown(f"git {arguments[0]} gave no answer in {GIT_TIMEOUT:.0f} s") from None
    except OSError as fault:
        raise GitUnknown(f"git cannot be run ({fault.strerror})") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if said and "not a git repository" in said[0]:
            raise GitUnknown("not a git repository")
        raise GitUnknown(f"git {arguments[0]} failed" + (f" ({said[0]})" if said else ""))
    return done.stdout.decode("utf-8", errors="replace")
