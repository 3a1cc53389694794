#!/bin/bash
# The whole run in one allocation of a Slurm cluster whose nodes share a folder. Submit it from the
# top of the repository, with its virtual environment active:
#
#   sbatch --nodes=4 deploy/slurm.sh +corpus=wiki recipe=devlin model=base workdir=/shared/wiki
#
# With `sbatch --export=NONE`, or without an active environment, it takes the clone's `.venv`.
# Training and evaluation run on all nodes, other stages on the first node while the others wait.
# `python -m pipeline.run … executor=slurm` submits one job per stage instead. See docs/slurm.md.
#SBATCH --job-name=bert-pretrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
if [ -z "$VIRTUAL_ENV$CONDA_PREFIX" ] && [ -x .venv/bin/python ]; then
    PATH=$PWD/.venv/bin:$PATH
fi
if ! command -v python > /dev/null; then
    echo "error: python: not found; activate the environment before sbatch, or make .venv here" >&2
    exit 2
fi
exec python -m pipeline.orchestration.slurm_job all "$@"
