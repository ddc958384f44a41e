#!/usr/bin/env bash
# Run one configuration with several seeds: scripts/run_seeds.sh FIRST LAST [--key value ...]
# JOBS (default: one a core) run at a time; the log of seed N goes to $LOGS/TIME-PID-seedN.log (default: runs/logs),
# where TIME-PID is that of this call: two calls never share a log.
set -euo pipefail
usage="usage: scripts/run_seeds.sh FIRST LAST [--key value ...]"
for argument in "$@"; do
    if [[ $argument == --help || $argument == -h ]]; then
        echo "$usage"
        sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
        echo "The keys are those of main.py: python main.py --help"
        exit 0
    fi
done
if [ $# -lt 2 ] || ! [[ $1 =~ ^[0-9]{1,18}$ && $2 =~ ^[0-9]{1,18}$ ]] || [ "$1" -gt "$2" ]; then
    echo "$usage; FIRST and LAST are whole numbers, FIRST not above LAST" >&2
    exit 2
fi
first=$1 last=$2
shift 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
config=(--config configs/train/train_mpe.yaml)
for argument in "$@"; do
    [[ $argument == --config || $argument == --config=* ]] && config=()
    if [[ $argument == --seed || $argument == --seed=* ]]; then
        echo "--seed: seeds are the first two arguments" >&2
        exit 2
    fi
done
JOBS=${JOBS:-$(env -u OMP_NUM_THREADS nproc)}  # nproc would obey it
if ! [[ $JOBS =~ ^0*[1-9][0-9]*$ ]]; then
    echo "JOBS: $JOBS is not a whole number of at least 1" >&2
    exit 2
fi
# A wrong setting is said once, before anything is written
"$python" - ${config[@]+"${config[@]}"} "$@" <<'E' || exit 2
import os
import sys

from envs.registry import validate_settings
from navrl.config_sources import load
from navrl.faults import ConfigError

try:
    load(sys.argv[1:], os.environ, validate_settings)
except ConfigError as error:
    sys.exit(str(error))
E
LOGS=${LOGS:-runs/logs}
mkdir -p "$LOGS"
export LOG=$LOGS/$(date +%Y%m%d-%H%M%S)-$$
# xargs appends the seed as the last argument; a placeholder (-I) would be replaced inside every argument, too
one_seed='
    seed=${!#}
    set -- "${@:1:$#-1}"
    echo "seed $seed: $LOG-seed$seed.log"
    "$@" --seed "$seed" > "$LOG-seed$seed.log" 2>&1 || {
        code=$?
        echo "seed $seed: exit code $code: $(tail -n 1 "$LOG-seed$seed.log")" >&2
        exit 1
    }'
status=0
seq "$first" "$last" | xargs -P "$JOBS" -n 1 \
    bash -c "$one_seed" _ "$python" main.py ${config[@]+"${config[@]}"} "$@" || status=1
exit $status
