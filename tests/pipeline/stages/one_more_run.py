"""A stage that resumes: it adds to what is there."""

from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.records.manifest import Result
from pipeline.stages import stage

TASK = TaskConfig(name="pair", folder="PAIR", columns=["a", "b"], labels=["no", "yes"], metrics=["accuracy"])


class CutOff(Exception):
    """The stage was interrupted."""


def resumed(out, mirror, fail, force=False):
    """Do a run more than there are in the folder of an evaluation; return how many there were.

    Raises:
        CutOff: it is to `fail` after that.
    """

    def make(config, folder):
        runs = folder / "runs"
        runs.mkdir(exist_ok=True)
        done = len(list(runs.glob("*.txt")))
        (runs / f"{done}.txt").write_text("done")
        if fail:
            raise CutOff
        return Result(summary="made", figures={"resumed": done})

    config = EvaluateConfig(
        pretrained=str(mirror.parent), task=TASK, data=str(mirror.parent), out=out, mirror=str(mirror), force=force
    )
    return int(stage.run("evaluate", config, make, in_place=True).figures["resumed"])
