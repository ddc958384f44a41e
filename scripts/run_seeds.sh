#!/usr/bin/env bash
# Run one configuration with several seeds: the main job with seeds FIRST to LAST, or a YAML file with those of a list.
#   scripts/run_seeds.sh FIRST LAST [--key value ...]
#   scripts/run_seeds.sh CONFIG "1 2 3 4 5" [--key value ...]
# JOBS (default: one a core) run at a time. Given again, it goes on where it was stopped and skips what is finished.
# Relative paths, and so runs/, are from where you stand.
# Several configurations, other machines: scripts/launch.py, which this calls.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage='usage: scripts/run_seeds.sh FIRST LAST [--key value ...], or scripts/run_seeds.sh CONFIG "1 2 3" [--key value ...]'

refuse() {
    echo "$1" >&2
    exit 2
}

for word in "$@"; do
    if [[ $word == --help || $word == -h ]]; then
        echo "$usage"
        sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}"
        echo "The keys are those of main.py: python main.py --help"
        exit 0
    fi
done
# 10#: a number that begins with 0 is no octal one
if [ $# -ge 2 ] && [[ $1 =~ ^[0-9]{1,18}$ && $2 =~ ^[0-9]{1,18}$ ]] && ((10#$1 <= 10#$2)); then
    config=$root/configs/train/train_mpe.yaml seeds=$1-$2
elif [ $# -ge 2 ] && [[ $1 =~ \.ya?ml$ && $2 =~ ^[0-9]+([,\ -]+[0-9]+)*$ ]]; then
    config=$1 seeds=$2
else
    refuse "$usage; FIRST and LAST are whole numbers, FIRST not above LAST"
fi
shift 2
words=()
while [ $# -gt 0 ]; do
    case $1 in
        --config=*) config=${1#*=} ;;
        --config)
            [ $# -ge 2 ] || refuse "--config: needs a file"
            config=$2
            shift
            ;;
        --seed | --seed=*) refuse "--seed: seeds are the first two arguments" ;;
        *) words+=("$1") ;;
    esac
    shift
done
[[ ${JOBS:-1} =~ ^0*[1-9][0-9]*$ ]] || refuse "JOBS: $JOBS is not a whole number of at least 1"

python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" "$root/scripts/launch.py" --config "$config" --seeds "$seeds" ${JOBS:+--jobs "$JOBS"} -- \
    ${words[@]+"${words[@]}"}
