"""`python -m pipeline.evaluate +task=NAME`: score a model on a task, most often after fine-tuning.

Every score comes with two baselines, the same network from random initialisation and the most
frequent class; the difference shows the benefit of pre-training. Each finished run is a file, so
that an interrupted or extended evaluation resumes.
"""

import json
import sys
from pathlib import Path

from model.distributed.gpus import require_gpus
from pipeline.cli import entry_point
from pipeline.config import EvaluateConfig
from pipeline.errors import ConfigError
from pipeline.evaluation.evaluators import evaluator_of
from pipeline.records import run_file
from pipeline.records.manifest import Result
from pipeline.stages import stage
from pipeline.storage.atomic import write_text


def make(config: EvaluateConfig, out: Path) -> Result:
    """Do the missing runs, and write the results of all runs into `out`.

    Raises:
        ConfigError, InputError: raised by the evaluation of the task's type, or required GPUs are missing.
    """
    require_gpus()
    found, summary, files = evaluator_of(config.task).evaluate(config, out)
    for name, text in {"results.json": json.dumps(found.to_json(), indent=1) + "\n", **files}.items():
        write_text(out / name, text)
    return Result(summary=summary, figures=found.to_json())


def evaluate(config: EvaluateConfig) -> None:
    """Run the stage; with `part`, the worker that completes the runs writes the results."""
    if config.part is None or evaluator_of(config.task).run_part(config, *config.part):
        stage.run("evaluate", config, make, in_place=True, wait=config.part is not None)


def main() -> None:
    """Run the command."""
    words = sys.argv[1:]

    def checked(config: EvaluateConfig) -> None:
        named = any(word.startswith(("pretrained=", "workdir=")) for word in words)
        if not named and "task=own" in (word.lstrip("+") for word in words):
            # The demo's model would silently be fine-tuned.
            raise ConfigError(
                "is required; add pretrained=FOLDER, the model to fine-tune (pretrained=work/sample/convert is that "
                "of make demo)",
                "pretrained",
            )
        evaluate(config)
        if run_file.OPTION not in words and Path(config.workdir, "report", "report.html").exists():
            print(f"python -m pipeline.report workdir={config.workdir} adds this to the report")

    entry_point.run("evaluate", EvaluateConfig, checked)


if __name__ == "__main__":
    main()
