"""`python -m pipeline.submit`: test-set answers as one zip file for the GLUE server.

The zip has one file of answers per task (https://gluebenchmark.com/faq).
"""

import zipfile
from dataclasses import replace
from pathlib import Path

from pipeline.cli import entry_point
from pipeline.config import SubmitConfig, TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import answers, examples
from pipeline.records.manifest import Result
from pipeline.stages import fetch_inputs, stage

ARCHIVE = "submission.zip"


def constant_rows(task: TaskConfig) -> str:
    """Return answers to a task that was not evaluated: always the first label."""
    assert task.test_rows is not None
    return answers.submission_rows(task, [0] * task.test_rows)


def sources_of(names: list[str]) -> list[str]:
    """Return the tasks whose evaluations answer submission files; some answer several."""
    covered = {name for task in answers.server_tasks().values() for name in task.also}
    return [
        task.name
        for task in answers.server_tasks().values()
        if task.name not in covered
        and {task.submission, *(examples.task_of(name).submission for name in task.also)} & {*names}
    ]


def make(config: SubmitConfig, out: Path) -> Result:
    """Collect the answers of evaluations into a zip file.

    Raises:
        InputError: answers are missing, or are not those that the server expects.
    """
    answered = {}
    for place in config.evaluations:
        for path in sorted((Path(place) / answers.FOLDER).glob("*.tsv")):
            answered[path.stem] = read_answers(path)
    if not answered:
        raise InputError(
            "no answers to GLUE's test sets found; evaluate a task of GLUE with submit=true first, as +task=rte",
            "workdir",
            config.workdir,
        )
    filled = [name for name in answers.server_tasks() if name not in answered]
    if filled and not config.fill:
        raise InputError(
            f"answers to {', '.join(filled)} are missing; evaluate "
            f"{', '.join(sources_of(filled))} with submit=true and the test files in data, or set "
            f"fill=true for constant answers (the server requires every file)",
            "fill",
            False,
        )
    answered |= {name: constant_rows(answers.server_tasks()[name]) for name in filled}
    with zipfile.ZipFile(out / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(answered.items()):
            member = zipfile.ZipInfo(f"{name}.tsv")  # no time stamp: reproducible bytes
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, text)
    summary = f"{len(answered) - len(filled)} tasks answered"
    if filled:
        summary += f", constant answers to {', '.join(filled)}"
    return Result(summary=summary, figures={"answered": sorted(answered), "filled": filled})


def read_answers(path: Path) -> str:
    """Return the text of a file of answers.

    Raises:
        InputError: the server expects other rows, as the test set here was another file.
    """
    text, known = path.read_text(encoding="utf-8"), answers.server_tasks().get(path.stem)
    count = text.count("\n") - 1
    if known is None:
        raise InputError("not a file of a GLUE task; remove it", path=path)
    if count != known.test_rows:
        raise InputError(
            f"{count:,} rows, but the server expects {known.test_rows:,}; evaluate "
            f"{known.name} with the official test set",
            path=path,
        )
    return text


def run(config: SubmitConfig) -> None:
    """Make the zip file of the given evaluations, or of all finished ones in the run."""
    evaluations = config.evaluations or fetch_inputs.list_stages(config.workdir, "evaluate-*")
    stage.run("submit", replace(config, evaluations=evaluations), make)


def main() -> None:
    """Run the command."""
    entry_point.run("submit", SubmitConfig, run)


if __name__ == "__main__":
    main()
