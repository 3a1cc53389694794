#!/bin/bash
# The whole job in one allocation of a Slurm cluster whose nodes share a folder, from the
# repository's top, with its virtual environment active:
#
#   sbatch --nodes=4 deploy/slurm.sh +corpus=wiki recipe=devlin model=base workdir=/shared/wiki
#
# Training runs on all nodes, evaluation too (a share each), the rest on the first one, while the
# others wait. `python -m pipeline.run … executor=slurm` submits a job for each stage instead.
# docs/slurm.md has the rest.
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
exec python -m pipeline.orchestration.slurm_job all "$@"
