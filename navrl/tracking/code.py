"""The code that a run used, kept in its directory: git-tracked files and what differs from the commit."""
from __future__ import annotations

import subprocess
from pathlib import Path

from navrl.files import write_text
from navrl.redaction import redact

LARGEST_FILE, LARGEST_ALL = 2**20, 20 * 2**20         # bytes
LEFT_OUT = {".env", ".netrc", "_netrc", ".npmrc", ".pypirc", "id_rsa", "id_ed25519", "credentials"}
LEFT_OUT_SUFFIXES = {".pem", ".key", ".p12", ".pfx"}


def snapshot(source_root: Path, run_dir: Path) -> str:
    """Copy the git-tracked text files under `source_root` to `run_dir/code/`, redacted, and the diff to `code.diff`.

    Returns "" or one line that says why there is no snapshot. Never raises.
    """
    try:
        names = _git(source_root, "ls-files", "-z").split("\0")
        total = 0
        for name in filter(None, names):
            path = source_root / name
            if path.is_symlink() or not path.is_file() or not _may_be_shown(path):
                continue
            size = path.stat().st_size
            if size > LARGEST_FILE or total + size > LARGEST_ALL:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            total += size
            target = run_dir / "code" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(redact(text), encoding="utf-8")
        diff = _git(source_root, "diff", "HEAD", "--no-color", "--no-ext-diff")
        write_text(run_dir / "code.diff", redact(diff))
        return ""
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        return f"no code snapshot: {' '.join(str(error).split())[:200]}"


def _may_be_shown(path: Path) -> bool:
    return path.name not in LEFT_OUT and path.suffix not in LEFT_OUT_SUFFIXES and not path.name.startswith(".env")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, timeout=20, check=True)
    return done.stdout.decode("utf-8", errors="replace")
