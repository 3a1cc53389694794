"""Keys and errors of stages in the words of a run: `steps` is `train.steps`, and it forces stages by name."""

import dataclasses
from collections.abc import Iterable, Mapping

from pipeline.cli import overrides
from pipeline.config import RunConfig
from pipeline.errors import BY_FORCE, UserError, named, rendered
from pipeline.stages.registry import STAGES, type_of

OWN = frozenset(field.name for field in dataclasses.fields(RunConfig)) | {"hydra"}
# Keys and groups of stages that a run passes on, or derives from keys of its own.
FROM_RUN = frozenset({"workdir", "mirror", "out", "task", "data", "seed", "force"})
GROUPS_FROM_RUN = frozenset({"corpus", "model"})


def belongs_to_stage(kind: str, key: str) -> bool:
    """Return whether a run takes a key with the prefix of a stage of this type."""
    return not is_passed_on(key) and overrides.type_of(STAGES[kind].schema, key) is not None


def is_passed_on(key: str) -> bool:
    """Return whether stages get a key from the run."""
    return key in FROM_RUN or key.partition(".")[0] in GROUPS_FROM_RUN


def owner(name: str, stages: Iterable[str]) -> str:
    """Return the recipe's stage of a node: `evaluate` of `evaluate-rte`, if that is not one."""
    owners = [stage for stage in stages if name == stage or name.startswith(f"{stage}-")]
    return max(owners, key=len, default=name)


def explain_in_run(error: UserError, stages: Iterable[str], outs: Mapping[str, str], kubernetes: bool) -> UserError:
    """Return the error of a stage as the run explains it.

    To be made again is the stage whose folder is at fault, of `outs` by name, or else this one. The
    Jobs of Kubernetes force none: whose folder is deleted runs again.
    """
    name = (error.where or "").removeprefix("stage ").partition(": ")[0]
    stage = owner(name, stages)
    kind = type_of(stage)
    places = [place for place in (error.path, error.value, error.where) if place]
    at_fault = (other for place in places for other, out in outs.items() if f"{place}/".startswith(f"{out}/"))
    remade = next(at_fault, name)

    def said(words: str) -> str:
        if named(words) == BY_FORCE:
            return f"by deleting {outs[remade]}" if kubernetes and remade in outs else f"with --force {remade}"
        return f"{stage}.{words}" if kind in STAGES and belongs_to_stage(kind, words) else words

    return error.but(key=error.key and said(error.key), problem=rendered(error.problem, said))


def explain_in_plan(error: UserError, stage: str) -> UserError:
    """Return the error of the configuration of a stage, with the keys that a run takes."""

    def said(words: str) -> str:
        if words == "--help":
            return f"python -m pipeline.{type_of(stage)} --help"
        return words if is_passed_on(words) or words.startswith(f"{stage}.") else f"{stage}.{words}"

    return error.but(key=error.key and said(error.key), problem=rendered(error.problem, said), where=f"stage {stage}")
