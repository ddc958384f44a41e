"""Files: replaced at once, so that a reader, a crash or a full disk meets the old or the new one; and their digests."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """``with replacing(path) as temporary``: what is written to ``temporary`` becomes ``path``, durably.

    Where the block raises (also where the disk is full: OSError), ``path`` stays as it was and nothing else is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")  # threads may write one path
    try:
        yield temporary
        _fsync(temporary)
        os.replace(temporary, path)
        with contextlib.suppress(OSError):  # some file systems cannot; the file is whole without it
            _fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Replace ``path`` by ``text``, UTF-8. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


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
