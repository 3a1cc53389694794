"""Group and tags of a run's W&B runs, which its stages find in the environment of W&B."""

import subprocess
from pathlib import Path

from pipeline import __version__
from pipeline.config import RunConfig

ROOT = Path(__file__).resolve().parents[2]


def environment(config: RunConfig) -> dict[str, str]:
    """Return the variables with the group and the tags of the stages."""
    return {"WANDB_RUN_GROUP": Path(config.workdir).name, "WANDB_TAGS": ",".join(tags(config))}


def tags(config: RunConfig) -> list[str]:
    """Return the recipe, the model's size, the corpus and the commit; the version without git."""
    found = (config.recipe, config.model.get("name"), config.corpus.name, commit())
    return [str(tag) for tag in found if tag]


def commit() -> str:
    """Return the commit of this checkout, or the version of an installed package."""
    if not (ROOT / ".git").exists():
        return __version__
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return done.stdout.strip()
