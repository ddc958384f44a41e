#!/usr/bin/env bash
# Run a W&B sweep file offline:
#   scripts/sweep.sh FILE [--trials T] [--jobs J] [--seeds 1-3] [--storage URL] [-- --key value ...]
# Needs: pip install -r requirements-sweep.txt. Give the same command again, here or on a machine that shares the study,
# to go on. Relative paths, and so runs/, are from where you stand.
# The best configuration afterwards: python scripts/sweep_report.py FILE
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
export OMP_NUM_THREADS=1 # one core a run
exec "$python" "$root/scripts/sweep.py" "$@"
