#!/usr/bin/env bash
# Copy finished runs to another disk or host, verified: scripts/backup.sh RUNS_DIR DEST
# RUNS_DIR: a root of runs, a group or one run. DEST: a directory that is there, or user@host:directory (through ssh).
# Runs that are still running are skipped; a second call copies what is new or has changed. Exit code 1: some failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m navrl.backup "$@"
