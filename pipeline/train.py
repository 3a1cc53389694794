"""`python -m pipeline.train`: pre-train BERT on this machine, in one process or several.

A single process trains without a launcher; several ranks are started by DeepSpeed's launcher, and
multiple nodes by `deepspeed model/train.py` (docs/stages/train.md). PyTorch is imported when
training starts, so that `--help` and error messages are fast.
"""

import os
import sys

from model import train
from model.config import TrainConfig
from pipeline.common import cores


def main() -> None:
    """Run the command."""
    words = sys.argv[1:]  # composition changes sys.argv

    def start(config: TrainConfig) -> None:
        processes = config.ranks(cores.gpus_present(), cores.available())
        if processes == 1:
            train.train(config)
            return
        sys.stdout.flush()
        from pipeline.orchestration import stage_commands

        command = stage_commands.launch_command(train.__file__, stage_commands.local_options(processes))
        os.execv(command[0], [*command, *words])

    train.main(start)


if __name__ == "__main__":
    main()
