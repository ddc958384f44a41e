#!/usr/bin/env bash
# An array job: task N runs line N of a file of commands, as `scripts/launch.py --dry-run` prints them.
# scripts/launch.py --engine slurm submits this. By hand: sbatch --array=1-6 scripts/slurm/array.sh COMMANDS [RETRIES]
# Partition, account and time: edit here, or set SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT.
#SBATCH --job-name=navrl
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
set -euo pipefail
commands=$1 retries=${2:-2}
task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
command=$(sed -n "${SLURM_ARRAY_TASK_ID}p" "$commands")
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# A minute before the time limit (or preemption) Slurm signals this shell; the run gets it and writes a checkpoint.
run=
trap 'kill -USR1 ${run:+"$run"} 2>/dev/null || true' USR1
trap 'kill -TERM ${run:+"$run"} 2>/dev/null || true' TERM
echo "$command"
eval "exec $command" & # one process, without srun: a signal has no detour
run=$!
code=0
while kill -0 "$run" 2>/dev/null; do # a trap ends `wait` early
    code=0
    wait "$run" || code=$?
done

# The same command goes on from the last checkpoint: after USR1 (138) always, after a failure or a kill RETRIES times.
case $code in
    0 | 2 | 130 | 143) ;;
    138) scontrol requeue "$task" ;;
    *) [ "${SLURM_RESTART_COUNT:-0}" -ge "$retries" ] || scontrol requeue "$task" ;;
esac
exit "$code"
