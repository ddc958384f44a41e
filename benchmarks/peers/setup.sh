#!/usr/bin/env bash
# The programs that NAVRL is measured against, in a directory and a virtual environment of their own:
#
#   benchmarks/peers/setup.sh .venv-peers                   # where env_throughput.py and train_throughput.py look
#   PYTHON=python3.12 benchmarks/peers/setup.sh DIRECTORY   # with another Python than python3 (3.11 or newer)
#
# JaxMARL, VMAS and mpe2 come from the package index; the training scripts of JaxMARL and the official MAPPO code are no
# packages and are cloned at a pinned commit. A clone that is there already (DIRECTORY/JaxMARL, DIRECTORY/on-policy) is
# taken as it is, so a machine without GitHub can be given one. torch comes from TORCH_INDEX_URL where that is set.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: benchmarks/peers/setup.sh DIRECTORY" >&2
    exit 2
fi
mkdir -p "$1"
cd "$1"

clone() { # name, repository, commit
    if [ ! -d "$1" ]; then
        git clone --quiet --no-checkout "https://github.com/$2" "$1.part"
        git -C "$1.part" checkout --quiet "$3"
        mv "$1.part" "$1"
    fi
}
clone JaxMARL FLAIROx/JaxMARL 014b4f0af877856dc0a90437596a23a31153e303
clone on-policy marlbenchmark/on-policy de66d7a4b23fac2513f56f96f73b3f5cb96695ac

[ -x venv/bin/python ] || "${PYTHON:-python3}" -m venv venv
pip() { venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
pip install torch==2.13.0 ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"}
pip install torch==2.13.0 numpy==2.4.6 mpe2==1.1.1 pettingzoo==1.27.0 gymnasium==1.3.0 vmas==1.5.2 \
    'jaxmarl[algs]==0.2.0' jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 optax==0.2.8 distrax==0.1.9 wandb==0.31.0 \
    tensorboardX==2.6.5
echo "peers are ready in $PWD"
