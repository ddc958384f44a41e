#!/usr/bin/env bash
# Set up and test: ./scripts/test.sh [pytest arguments]
# A test whose service (PostgreSQL, chromium) is not on this machine is skipped and counted in one line.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/setup.sh"
setup "$root" requirements.txt requirements-test.txt
cd "$root"
export OMP_NUM_THREADS=1
# Two processes: many tests wait for servers, and a file's tests share what they started.
exec .venv/bin/python -m pytest -n "${TEST_PROCESSES:-2}" --dist loadfile "$@"
