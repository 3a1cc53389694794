"""`python -m pipeline.submit`: test-set answers as one zip file for the GLUE server."""

from dataclasses import replace
from pathlib import Path

from pipeline.cli import entry_point
from pipeline.config import SubmitConfig
from pipeline.evaluation import glue_submission
from pipeline.stages import stage


def run(config: SubmitConfig) -> None:
    """Make the zip file of the given evaluations, or of all those in the run."""
    every = sorted(map(str, Path(config.workdir).glob("evaluate-*")))
    named = replace(config, evaluations=config.evaluations or every)
    stage.run("submit", named, glue_submission.make)


def main() -> None:
    """Run the command."""
    entry_point.run("submit", SubmitConfig, run)


if __name__ == "__main__":
    main()
