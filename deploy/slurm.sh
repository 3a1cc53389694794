#!/bin/bash
# The whole job on a Slurm cluster whose nodes share a folder, from the repository's top:
#
#   sbatch --nodes=4 deploy/slurm.sh +corpus=wiki recipe=devlin model=base workdir=/shared/wiki
#
# Training runs on all nodes, evaluation too (a share each), the rest on the first one. Before the
# time limit, and at a pre-emption, Slurm sends SIGTERM: all ranks save, and the job queues again.
# Finished stages are skipped, so submitting it once more never harms.
#SBATCH --job-name=bert-pretrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

export NODES=$SLURM_JOB_NUM_NODES PARTS=$SLURM_JOB_NUM_NODES
export GPUS=${SLURM_GPUS_ON_NODE:-0}
HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)
export HOSTS

pod() { # nodes, stage: what a Kubernetes Job's pods would run
    local nodes=$1 stage=$2 code=0
    shift 2
    # shellcheck disable=SC2016
    srun --nodes="$nodes" --ntasks="$nodes" --kill-on-bad-exit=0 \
        bash -c 'JOB_COMPLETION_INDEX=$SLURM_PROCID exec python -m pipeline.orchestration.run_stage "$@"' - \
        "$stage" "$@" || code=$?
    if [ "$code" = 75 ]; then # nothing is wrong: go on in the next slot
        scontrol requeue "$SLURM_JOB_ID"
    fi
    [ "$code" = 0 ] || exit "$code"
}

stages=$(python -m pipeline.run "$@" dry_run=true | awk '{print $1}' | sed 's/^evaluate-.*/evaluate/' | uniq)
for stage in $stages; do
    case $stage in
    train* | evaluate) pod "$NODES" "$stage" "$@" ;;
    *) pod 1 "$stage" "$@" ;;
    esac
done
