"""`python -m pipeline.submit`: test-set answers as one zip file for the GLUE server."""

from dataclasses import replace
from pathlib import Path

from pipeline.cli import entry_point
from pipeline.config import SubmitConfig
from pipeline.evaluation import glue_submission
from pipeline.stages import stage, store_inputs


def run(config: SubmitConfig) -> None:
    """Make the zip file of the given evaluations, or of all those in the run."""
    stage.run("submit", replace(config, evaluations=evaluations(config)), glue_submission.make)


def evaluations(config: SubmitConfig) -> list[str]:
    """Return the folders of the given evaluations, or of all those in the run."""
    if config.evaluations:
        return config.evaluations
    if store_inputs.in_store(config.workdir):
        return store_inputs.stages_in(config.workdir, "evaluate-*")
    return sorted(map(str, Path(config.workdir).glob("evaluate-*")))


def main() -> None:
    """Run the command."""
    entry_point.run("submit", SubmitConfig, run)


if __name__ == "__main__":
    main()
