"""Script variants: `-{zh-hans:计算机; zh-hant:電腦}-` is resolved to one of them.

Source: https://www.mediawiki.org/wiki/Writing_systems/Syntax
"""

import re

from pipeline.common.tables import read_table

_TABLE = read_table(__file__, "language_variants.yaml")
CONVERTED, _PREFERRED = frozenset(_TABLE["converted"].split()), _TABLE["preferred"].split()
_VARIANT = re.compile(r"-\{([^{}]*+)\}-")
_RULE = re.compile(r"(?:^|;)\s*+(?:(?:[^;:=]|=(?!>))*+=>\s*+)*+([a-z]{2,4}(?:-[a-z]+)?)\s*+:", re.IGNORECASE)
_HIDDEN = frozenset("AHT-DN")  # flags: rules for later, the page's title, a description


def resolve(text: str) -> str:
    """Replace each conversion block by one variant."""
    for _ in range(4):  # blocks within blocks
        if "-{" not in text:
            break
        text = _VARIANT.sub(_choose, text)
    return text


def _choose(match: re.Match[str]) -> str:
    content = match[1]
    flags, bar, rules = content.partition("|")
    wanted = {flag.strip().upper() for flag in flags.split(";")} if bar else set()
    if wanted and not all(len(flag) <= 1 or flag.lower() in _PREFERRED for flag in wanted):
        wanted, rules = set(), content  # the bar belonged to a link
    elif not bar:
        rules = content
    if wanted & _HIDDEN and "S" not in wanted and wanted != {"A"}:
        return ""
    if "R" in wanted:
        return rules
    starts = list(_RULE.finditer(rules))
    ends = [*[rule.start() for rule in starts], len(rules)][1:]
    choices = {
        rule[1].lower(): rules[rule.end() : end].strip().rstrip(";") for rule, end in zip(starts, ends, strict=True)
    }
    return next((choices[variant] for variant in (*_PREFERRED, *choices) if variant in choices), rules)
