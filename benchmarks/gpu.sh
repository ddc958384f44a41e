#!/usr/bin/env bash
# What only an NVIDIA GPU can show: benchmarks/gpu.sh [DIRECTORY for the runs; default: a temporary one, removed]
# That the loop never waits for the device, how fast the environment steps there, and short trainings on GPU and CPU:
# their speed and what they reach. PYTHON chooses the interpreter (default: .venv's, else python3).
# Exit code: 0 · 1 something failed · 2 there is no GPU that PyTorch can use, nothing was run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=python3
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    echo "no NVIDIA GPU that PyTorch ($python) can use; nothing was run" >&2
    exit 2
fi
export OMP_NUM_THREADS=1
out=${1:-}
if [ -z "$out" ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
failed=()

step() { # TITLE COMMAND...
    local title=$1
    shift
    echo "== $title: $*"
    "$@" || failed+=("$title")
}

train() { # DEVICE COPIES JOINT_STEPS_A_MINIBATCH ITERATIONS: a run, then its speed and reward in one line
    local group=gpu_$1_$2
    "$python" main.py --config configs/train/train_mpe.yaml --seed 1 --device "$1" --num_envs "$2" \
        --mini_batch_size "$3" --total_env_steps $((25 * $2 * $4)) --eval_interval "$4" --checkpoint_interval "$4" \
        --final_eval_episodes 100 --log_eval_episodes 0 --logger '[]' --no_log_wandb \
        --run_dir "$out" --group "$group" >"$out/$group.log" 2>&1 || {
        tail -n 5 "$out/$group.log"
        return 1
    }
    "$python" - "$out" "$group" <<'END'
import json, pathlib, statistics, sys
(rows,) = pathlib.Path(sys.argv[1]).glob(f"*/{sys.argv[2]}/*/metrics.jsonl")
rates = [row["perf/env_steps_per_second"] for row in map(json.loads, rows.open()) if "perf/env_steps_per_second" in row]
final = json.loads((rows.parent / "summary.json").read_text())["final"]["mean"]["episode_reward"]
print(f"{sys.argv[2]}: {statistics.median(rates[1:] or rates):,.0f} env steps/s with updates, final reward {final:.2f}")
END
}

mkdir -p "$out"
"$python" -c 'import sys; sys.path[:0] = [".", "benchmarks"]; from machine import machine; print(machine("mpe2"))'
step "tests" "$python" -m pytest -q tests/test_nothing_waits_for_the_device.py tests/test_the_gpu_is_not_waited_for.py
step "environment on the GPU" "$python" benchmarks/env_throughput.py --peers none --device cuda \
    --rounds 3 --seconds 1 --num_envs 128 1024 4096 16384
step "environment on the CPU" "$python" benchmarks/env_throughput.py --peers none --rounds 3 --seconds 1 \
    --num_envs 128 1024 4096 16384
for device in cuda cpu; do
    step "training on $device, the default recipe" train "$device" 128 400 20
    step "training on $device, many copies" train "$device" 4096 12800 3
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "all passed"
