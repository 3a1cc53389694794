"""`python -m pipeline.dashboards DIR --entity NAME`: a W&B workspace and a report of a run.

The workspace shows the whole run: curves of training, of fine-tuning and of the nodes, and tables
of the corpus and the scores. An offline run already has its id: create both before or after
`wandb sync`. `--log` first logs the finished stages that W&B does not have yet, as
`report.tracking=wandb` does at the end of a run.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from model.tracking.wandb import has_key, project_of
from pipeline.cli import entry_point
from pipeline.console.arguments import Arguments
from pipeline.errors import ConfigError, InputError, first_line
from pipeline.reporting import wandb_stages


def make(words: argparse.Namespace) -> None:
    """Build and save both.

    Raises:
        ConfigError: No W&B key is set, or the library is not installed.
        InputError: the folder has no training that was logged to W&B.
    """
    try:
        from pipeline.reporting import dashboards
    except ModuleNotFoundError as error:
        raise ConfigError(
            "wandb_workspaces is not installed; pip install -e '.[dashboards]'", "pipeline.dashboards"
        ) from error
    if not words.work.is_dir():
        raise InputError("no such folder; name that of a run", path=words.work)
    if words.log:
        wandb_stages.log(words.work, wandb_stages.finished_in(words.work), words.project)
    page = dashboards.report(words.entity, words.project, words.work)
    board = dashboards.workspace(words.entity, words.project)
    if words.dry_run:
        models = {
            name: made._to_model().model_dump(mode="json", by_alias=True, exclude_none=True)
            for name, made in {"workspace": board, "report": page}.items()
        }
        print(json.dumps(models, indent=1))
        return
    if not has_key():
        raise ConfigError("no W&B key: set WANDB_API_KEY, or print the result with --dry-run")
    save(board, page)


def save(*pages: Any) -> None:
    """Save the pages.

    Raises:
        InputError: W&B cannot be reached, or does not take the key or the pages.
    """
    import requests
    from wandb.errors import Error

    try:
        for page in pages:
            page.save()
    except (Error, requests.RequestException, ValueError) as error:
        raise InputError(f"W&B does not save the pages: {first_line(error)}") from error


def main() -> None:
    """Run the command."""
    parser = Arguments(prog="python -m pipeline.dashboards", description=__doc__)
    parser.add_argument("work", metavar="DIR", type=Path, help="folder of a run: work/CORPUS")
    parser.add_argument("--entity", required=True, help="W&B user or team")
    parser.add_argument("--project", default=project_of(None), help="project of the tracker (default: %(default)s)")
    parser.add_argument("--log", action="store_true", help="log finished stages first")
    parser.add_argument("--dry-run", action="store_true", help="print what would be saved")
    entry_point.run_guarded(lambda: make(parser.parse_args()))


if __name__ == "__main__":
    main()
