"""Stages' messages in the words of a run: its keys have prefixes, and it forces stages by name."""

import re
from collections.abc import Iterable, Mapping

from pipeline.common.errors import UserError
from pipeline.orchestration.stage_keys import belongs_to_stage
from pipeline.stages.registry import STAGES, type_of

BEGIN = re.compile(r"[a-z][\w.]*(?:, [a-z][\w.]*)*(?=: | (?:is|are) required)")
KEY = re.compile(r"(?<![\w./=+'\"?&-])[a-z]\w*(?:\.\w+)*(?==)|(?<=did you mean )[\w.]+(?=\?)")
UNKNOWN = ": no such key"
FORCE = re.compile(r"(?:with )?\bforce=true")
STAGE = re.compile(r"stage ([\w-]+): ")


def owner(name: str, stages: Iterable[str]) -> str:
    """Return the recipe's stage of a node: `evaluate` of `evaluate-rte`, if that is not one."""
    known = [stage for stage in stages if name == stage or name.startswith(f"{stage}-")]
    return max(known, key=len, default=name)


def with_prefix(text: str, stage: str) -> str:
    """Return a stage's message with the keys that a run takes, for a stage of the recipe."""
    kind = type_of(stage)
    if kind not in STAGES:
        return text

    def keys(found: re.Match[str]) -> str:
        unknown = text[found.end() :].startswith(UNKNOWN)
        names = found[0].split(", ")
        return ", ".join(f"{stage}.{key}" if unknown or belongs_to_stage(kind, key) else key for key in names)

    begin = BEGIN.match(text)
    head, rest = (keys(begin), text[begin.end() :]) if begin else ("", text)
    rest = rest.replace("; --help lists", f"; python -m pipeline.{kind} --help lists")
    return head + KEY.sub(keys, rest)


def forced(text: str, name: str, outs: Mapping[str, str], kubernetes: bool = False) -> str:
    """Return a message of the stage `name` that advises how to force a stage in a run.

    It is the stage whose folder the message names, of `outs` by name, or else `name`. The Jobs of
    Kubernetes force none: whose folder is deleted runs again.
    """
    named = {
        found.start(): other for other, out in outs.items() if (found := re.search(rf"{re.escape(out)}(?![\w-])", text))
    }
    stage = named[min(named)] if named else name
    how = f"--force {stage}"
    if kubernetes and stage in outs:
        return FORCE.sub(f"by deleting {outs[stage]}", text)
    return FORCE.sub(lambda found: f"with {how}" if found[0].startswith("with") else how, text)


def in_run(error: UserError, stages: Iterable[str], outs: Mapping[str, str], kubernetes: bool) -> UserError:
    """Return the error of a stage as the run explains it, and any other error unchanged."""
    found = STAGE.match(str(error))
    if found is None:
        return error
    stage = owner(found[1], stages)
    text = forced(with_prefix(str(error)[found.end() :], stage), found[1], outs, kubernetes)
    said = type(error)(found[0] + text)
    said.key, said.path, said.line = error.key, error.path, error.line
    return said
