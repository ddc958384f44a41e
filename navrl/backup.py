"""Copy finished runs to another disk or host, whole and verified: `scripts/backup.sh RUNS_DIR DEST`.

A run arrives as a directory beside its final name, is verified there by `sha256sum` against digests taken here, and is
renamed only then. `backup.sha256` in it lists every file; a run whose copy has the same list and still verifies is left
alone, one that has gone on since is replaced, and another run under its name never is. The other end may be any Linux;
on another host ssh must let us in without a question.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

from navrl.files import sha256_of
from navrl.pipes import Parser, run_program
from navrl.tracking.record import EVENTS, LOCK, METRICS, SUMMARY, is_alive, is_locked, parse_lines

MANIFEST = "backup.sha256"
INDEX = "checkpoints/index.json"
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")  # no prompt: it may run from cron
NOT_THERE, DAMAGED, ANOTHER = 3, 4, 5  # what CHECK says with its exit code

# Both are POSIX shell, run at the destination: $1 is its directory, $2 the run's name in it.
CHECK = f"""
unset CDPATH
cd -- "$1" || exit 2
test -e "$2" || exit {NOT_THERE}
cd -- "$2" || exit 2
if cmp -s {MANIFEST} -; then
    sha256sum -c {MANIFEST} >/dev/null 2>&1 || exit {DAMAGED}
    exit 0
fi
cat {EVENTS} 2>/dev/null
exit {ANOTHER}
"""
RECEIVE = f"""
set -e
unset CDPATH
export LC_ALL=C
final=$2 parent=$3 stage=$3/$4 old=$3/$5
cd -- "$1"
mkdir -p -- "$parent"
trap 'rm -rf -- "$stage"; test -e "$final" || test ! -e "$old" || mv -T -- "$old" "$final"' EXIT
trap 'exit 1' HUP INT TERM PIPE
mkdir -- "$stage"
tar -xf - -C "$stage"
if ! said=$(cd -- "$stage" && sha256sum -c {MANIFEST} 2>&1); then
    printf 'not as it was sent: ' >&2
    printf '%s\\n' "$said" | grep -v ': OK$' | head -n 1 >&2
    exit 1
fi
sync
if test -e "$final"; then mv -T -- "$final" "$old"; fi
mv -T -- "$stage" "$final"
rm -rf -- "$old"
# of copies that a kill or a power cut ended
find "$parent" -maxdepth 1 -type d '(' -name '.*.partial-????????' -o -name '.*.old-????????' ')' -mtime +0 \\
    -exec rm -rf -- '{{}}' +
"""


class BackupError(Exception):
    """One run was not copied; the message is one line that says why."""


class Destination(NamedTuple):
    """host: user@host or host, "" for this machine. directory: absolute where it is on this machine."""

    host: str
    directory: str

    def shell(self, script: str, *arguments: str) -> list[str]:
        """The command that runs a script there with these arguments."""
        if not self.host:
            return ["sh", "-c", script, "backup", *arguments]
        return [*SSH, self.host, shlex.join(["sh", "-c", script, "backup", *arguments])]


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.prog = "scripts/backup.sh"
    parser.add_argument("runs_dir", type=Path, metavar="RUNS_DIR", help="a root of runs, a group or one run")
    parser.add_argument("dest", metavar="DEST", help="a directory that is there, or user@host:directory")
    arguments = parser.parse_args(argv)
    root = arguments.runs_dir.absolute()
    destination = _destination(arguments.dest, root, parser.error)
    unreadable: list[OSError] = []
    runs = find_runs(root, unreadable)
    if not runs and not unreadable:
        parser.error(f"{root} holds no runs (no {SUMMARY} beside a {METRICS} in it)")
    there = subprocess.run(destination.shell('cd -- "$1"', destination.directory), stdin=subprocess.DEVNULL,
                           capture_output=True)  # fmt: skip
    if there.returncode:
        print(f"DEST: {_reason(there.stderr, 'it cannot be reached')}; nothing was copied", file=sys.stderr)
        return 1
    counts = {"copied": 0, "skipped": 0, "failed": len(unreadable)}
    for error in unreadable:
        print(f"failed {_shown(str(error.filename))}: {error.strerror}", file=sys.stderr)
    for run in runs:
        name = root.name if run == root else str(run.relative_to(root))
        try:
            verdict, detail = back_up(run, name, destination)
        except (BackupError, OSError) as error:
            verdict, detail = "failed", " ".join(str(error).split())
        counts[verdict] += 1
        line = f"{verdict} {_shown(name)}" + (f": {detail}" if detail else "")
        print(line, file=sys.stderr if verdict == "failed" else sys.stdout, flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["failed"] else 0


def find_runs(root: Path, unreadable: list[OSError]) -> list[Path]:
    """Run directories at or below `root`, links not followed, sorted; directories that cannot be read are added."""
    found = []
    for directory, below, files in os.walk(root, onerror=unreadable.append):
        below.sort()
        if METRICS in files and (SUMMARY in files or LOCK in files):
            found.append(Path(directory))
            below.clear()
        below[:] = [name for name in below if not re.search(r"\.(partial|old)-[0-9a-f]{8}$", name)]
    return found


def back_up(run: Path, name: str, destination: Destination) -> tuple[str, str]:
    """Copy one run to `destination/name`. Returns (`copied` or `skipped`, what there is to say).

    Raises BackupError where its files are not what was recorded or do not arrive whole, OSError where they cannot be
    read; under its final name there is then what was there before.
    """
    if busy := _busy(run):
        return "skipped", busy
    files, links = _content(run)
    digests = {file: sha256_of(run / file) for file in files}
    _require_recorded(run, digests)
    manifest = "".join(_line(digest, file) for file, digest in sorted(digests.items()))
    there = subprocess.run(destination.shell(CHECK, destination.directory, name), input=os.fsencode(manifest),
                           capture_output=True)  # fmt: skip
    if there.returncode == 0:
        return "skipped", "already there, verified"
    if there.returncode not in (NOT_THERE, DAMAGED, ANOTHER):
        raise BackupError(_reason(there.stderr, "the destination cannot be reached"))
    if there.returncode == ANOTHER and not _went_on(there.stdout, run):
        raise BackupError("the destination has another run under this name; it is left as it is, choose another DEST")
    _send(run, name, destination, manifest, [*files, *links])
    if busy := _busy(run):
        raise BackupError(f"{busy} since it was copied; the copy is of before")
    size = sum((run / file).stat().st_size for file in files)
    again = {DAMAGED: "; the copy that was there was damaged", ANOTHER: "; it has gone on since it was copied"}
    again = again.get(there.returncode, "")
    return "copied", f"{len(files)} files, {size / 1e6:.1f} MB, verified{again}"


def _send(run: Path, name: str, destination: Destination, manifest: str, members: list[str]) -> None:
    token = secrets.token_hex(4)
    head, _, last = name.rpartition("/")
    places = [f"./{head}", *(f".{last[:50]}.{kind}-{token}" for kind in ("partial", "old"))]
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, MANIFEST).write_bytes(os.fsencode(manifest))
        Path(scratch, "members").write_bytes(b"".join(os.fsencode(f"./{member}") + b"\0" for member in members))
        pack = subprocess.Popen(
            ["tar", "-cf", "-", "--no-recursion", "-C", scratch, MANIFEST, "-C", str(run), "--null", "-T",
             str(Path(scratch, "members"))],
            stdout=subprocess.PIPE, stderr=open(Path(scratch, "said"), "wb"), env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
        unpack = subprocess.run(destination.shell(RECEIVE, destination.directory, name, *places), stdin=pack.stdout,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        pack.stdout.close()
        pack.wait()
        if unpack.returncode:
            raise BackupError(_reason(unpack.stderr, "it did not arrive"))
        if pack.returncode > 1:  # 1: a file changed meanwhile, of which the digests have judged
            raise BackupError(_reason(Path(scratch, "said").read_bytes(), "it could not be packed"))


def _content(run: Path) -> tuple[list[str], list[str]]:
    """Names of the files and of the links and directories of a run, relative to it; locks and half-made files left out."""
    files, others = [], []
    for directory, below, names in os.walk(run, onerror=_raise):
        for name in (*below, *names):
            path = Path(directory, name)
            relative = str(path.relative_to(run))
            if path.is_symlink() or name in below:
                others.append(relative)
            elif path.is_file() and name not in (LOCK, MANIFEST) and not (name[0] == "." and name.endswith(".tmp")):
                files.append(relative)
    return sorted(files), sorted(others)


def _busy(run: Path) -> str:
    """Who still writes this run, or ""."""
    if is_alive(run):
        return "still running"
    for lock in (run / "tracking").glob(f"*/{LOCK}"):
        if is_locked(lock):
            return f"still being published to {lock.parent.name}"
    return ""


def _require_recorded(run: Path, digests: dict[str, str]) -> None:
    """Raise BackupError for a checkpoint that is not the one that was recorded: a good copy of it must not be lost."""
    recorded: dict[str, str] = {}
    try:
        events = parse_lines((run / EVENTS).read_bytes(), EVENTS)[0] if (run / EVENTS).exists() else []
        index = json.loads((run / INDEX).read_text(encoding="utf-8")) if (run / INDEX).exists() else {"checkpoints": []}
        recorded |= {event["path"]: event["metadata"]["sha256"] for event in events if event.get("event") == "artifact"}
        recorded |= {f"checkpoints/{entry['file']}": entry["sha256"] for entry in index["checkpoints"]}
        kept = {f"checkpoints/{entry['file']}" for entry in index["checkpoints"]}
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"what it records of its checkpoints is damaged ({error})") from None
    for file, digest in recorded.items():
        if digests.get(file, digest if file not in kept else None) != digest:
            raise BackupError(f"{_shown(file)} is {'not what was recorded' if file in digests else 'gone'}; its record "
                              "says so, and an earlier copy of the run is left as it is")


def _went_on(journal: bytes, run: Path) -> bool:
    """Whether this run's journal begins with that one (its last line may be torn): then it is the same run, later."""
    whole = journal[: journal.rfind(b"\n") + 1]
    return bool(whole) and (run / EVENTS).read_bytes().startswith(whole)


def _raise(error: OSError) -> NoReturn:
    raise error


def _line(digest: str, name: str) -> str:
    """A line as `sha256sum` writes and reads it, names with line breaks and backslashes included."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}\n"


def _destination(text: str, root: Path, refuse: Callable[[str], NoReturn]) -> Destination:
    """Raises SystemExit (2) through `refuse` for a place that cannot take runs."""
    if not root.is_dir():
        refuse(f"RUNS_DIR: {root} is no directory")
    host, colon, directory = text.partition(":")
    if colon and "/" not in host:
        if not host or host.startswith("-"):
            refuse(f"DEST: {text!r} names no host")
        return Destination(host, directory.removeprefix("~/") or ".")
    place = Path(text).absolute()
    if not place.is_dir():
        refuse(f"DEST: {place} is no directory; make it first, and mount the disk that it is on")
    if place.resolve().is_relative_to(root.resolve()):
        refuse(f"DEST: {place} is inside {root}; a copy belongs elsewhere")
    return Destination("", str(place))


def _reason(said: bytes, otherwise: str) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return next((line for line in lines if "No space left" in line), lines[0] if lines else otherwise)


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


if __name__ == "__main__":
    run_program(main, unread=1)
