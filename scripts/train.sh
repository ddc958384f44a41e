#!/usr/bin/env bash
# Set up and train: ./scripts/train.sh [--key value ...]
# The arguments are those of main.py (python main.py --help); they start from the main job unless --config or --resume
# says otherwise.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/setup.sh"
setup "$root" requirements.txt
cd "$root"
start=(--config configs/train/train_mpe.yaml)
for word in "$@"; do
    case $word in --config | --config=* | --resume | --resume=*) start=() ;; esac
done
exec .venv/bin/python main.py ${start[@]+"${start[@]}"} "$@"
