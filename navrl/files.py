"""Files: replaced at once, so that a reader, a crash or a full disk meets the old or the new one; and their digests."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """``with replacing(path) as temporary``: what is written to ``temporary`` becomes ``path``, durably.

    Where the block raises (also where the disk is full: OSError), ``path`` stays as it was and nothing else is left;
    of a process that is killed in the block, ``sweep`` takes away what is.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")  # threads may write one path
    try:
        yield temporary
        _fsync(temporary)
        os.replace(temporary, path)
        settle_names(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: Path | str) -> None:
    """Raises ValueError, in words, where a file of this name could not be written: asked before long work begins."""
    try:
        if not str(path) or "\0" in str(path) or (Path(path).exists() and not Path(path).is_file()):
            raise ValueError(f"{str(path)!r} is not the name of a file")
        with tempfile.TemporaryFile(dir=Path(path).absolute().parent):
            pass
    except OSError as error:
        raise ValueError(f"{path}: its directory is not there or cannot be written ({error.strerror})") from None


def write_text(path: Path | str, text: str) -> None:
    """Replace ``path`` by ``text``, UTF-8. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sweep(directory: Path) -> None:
    """Remove what processes that were killed amid ``replacing`` left here. Only where no other process writes."""
    for path in directory.glob(".*.tmp"):
        if re.fullmatch(r"\..+\.\d+-[0-9a-f]{8}\.tmp", path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def settle_names(directory: Path) -> None:
    """What was made, renamed or removed in ``directory`` is so after a power cut too, where the file system can."""
    with contextlib.suppress(OSError):  # some cannot
        _fsync(directory)


def sha256_of(path: Path | str) -> str:
    """SHA-256 of a file's content, hex. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
