#!/usr/bin/env bash
# Set up and train: ./scripts/train.sh [--key value ...]
# The arguments are those of main.py (python main.py --help); without any, the main job with seed 1.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/setup.sh"
setup "$root" requirements.txt
cd "$root"
exec .venv/bin/python main.py --config configs/train/train_mpe.yaml --seed 1 "$@"
