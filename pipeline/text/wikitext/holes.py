"""Holes: places within sentences from which markup was taken that has no plain text.

A hole is a noncharacter, by kind of markup. Where markup shows nothing or is outside of sentences,
there is none. Sentences with holes are left out, so that "the radius is and" is not learnt.
"""

import html.entities
import itertools
import re
from collections import Counter

from pipeline.text.html_text import EVEN, LOWERED, plain_heights
from pipeline.text.sentences import split_sentences

FORMULA, CODE, TEMPLATE, TAG, PAGE, SOUND = "\ufde0\ufde1\ufde2\ufde3\ufde4\ufde5"
KINDS = {FORMULA: "a formula", CODE: "code", TEMPLATE: "a template", TAG: "a tag", PAGE: "the next page"}
KINDS[SOUND] = "a pronunciation"  # no hole in brackets
HOLES = re.compile(f"[{''.join(KINDS)}]")
_RUN = re.compile(f"{HOLES.pattern}+")
_WORD = re.compile(r"\w")
_MARKERS = "*#:; \t"  # of lists
END = re.compile(r"[.!?。！？।…][\"'”’»）)\]]*$")

_BRACKET = re.compile(r"( ?)([(（](?<![A-Za-z0-9]\()[^()（）\n]*+[)）]|\[[^()（）\[\]\n]*+\])")
# With its label: `Greek: {{a}}`, or of a pronunciation one word, `pronounced {{ipa|a}}`.
_PART = re.compile(
    rf"(?:^|[;,、，；]|(?<= )[–—/-](?= ))(?:[^\d;,:、，；：]*+[:：]|\s*+[a-zà-ÿ]++(?=\s*+{SOUND}))?"
    rf"[\s{''.join(KINDS)}]+(?=$|[;,:、，；：]| [–—/-] )"
)
# Before a hole that is not a footnote: blanks, opening marks, and letters of scripts without spaces between words.
_APART = re.compile(
    "[\\s(\\[{（「『【《“„«‹‘\"'$€£¥/=–—\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff-]"
)
_ABBREVIATED = re.compile(r"\W?\w|\w\d|\d:")  # a digit or a letter alone: `5{{percent}}`, `C{{music|sharp}}`, `1:{{x}}`
_CLOSED = re.compile(r"[\s.,;:!?)\]。、，；：！？）]|$")
_FIRST = re.compile(rf"^([{_MARKERS}=]*+)(?:[{TEMPLATE}{PAGE}{TAG}][ \t]*+)+(?=(.))")
_SHOWN = re.compile(f"[{FORMULA}{CODE}]")  # may be displayed, as a paragraph of its own


def _bracket(match: re.Match[str]) -> str:
    """Remove the parts of a bracket that are nothing but holes, and pronunciations; no part of a pair or interval."""
    blank, bracket = match.groups()
    kinds = set(HOLES.findall(bracket))
    if not kinds or (bracket[0] == "[" and kinds != {SOUND}):
        return match[0]
    inner = _PART.sub("", bracket[1:-1]).replace(SOUND, "").replace("[]", "").strip(" ;,:、，；：–—/-")
    if not _WORD.search(inner):
        return ""
    return match[0] if FORMULA in kinds else blank + bracket[0] + inner + bracket[-1]


def _note(run: re.Match[str]) -> str:
    """Remove a hole behind the end of a sentence, of a pronunciation behind a name, of a footnote behind a word."""
    before, after = run.string[max(0, run.start() - 40) : run.start()], run.string[run.end() : run.end() + 2]
    word = before and not _APART.match(before[-1]) and not _ABBREVIATED.fullmatch(before[-2:])
    note = END.search(before[-2:]) or (word and not run[0].strip(TEMPLATE + SOUND))
    name = before.split(" ")[-2] if before[-1:] == " " else ""
    named = name[-1:] == ")" or (name[:1].isupper() and after.strip()[:1] in (",", ";", "("))
    return "" if (note and _CLOSED.match(after)) or (named and not run[0].strip(SOUND)) else run[0]


def _first(match: re.Match[str]) -> str:
    """Keep a hole that is the subject, as of `{{a}} is`, `{{a}}は` or `{{a}}, born`."""
    markers, following = match.groups()
    apart = following.isupper() or following in "'\"“«„「" or (markers.strip() and following.isalpha())
    return markers if apart and not following.islower() else match[0]


def remove_holed(paragraphs: list[str], language: str, counts: Counter[str]) -> list[str]:
    """Return paragraphs without the sentences that lack a formula; count these by kind."""
    if FORMULA in "".join(paragraphs):
        paragraphs = leave_out("\n\n".join(paragraphs), language, counts).split("\n")
    return list(filter(None, paragraphs))


def leave_out(text: str, language: str, counts: Counter[str]) -> str:
    """Leave out the sentences with a hole, before lines become paragraphs; count them by kind."""
    blocks = text.split("\n\n")
    holed = [at for at, block in enumerate(blocks) if not block.isascii() and HOLES.search(block)]
    near = {at + by for at in holed for by in ((-1, 0, 1) if _SHOWN.search(blocks[at]) else (0,))}
    parts = []
    for is_near, group in itertools.groupby(range(len(blocks)), near.__contains__):
        part = "\n\n".join([blocks[at] for at in group])
        parts.append(_filled(part, language, counts) if is_near else part)
    return "\n\n".join(parts)


def _filled(text: str, language: str, counts: Counter[str]) -> str:
    """Return lines without the sentences that have a hole; a displayed formula is a part of those around it."""
    blocks, last, displayed, follows = [[""]], "=", False, False  # last: line with text
    for line in text.split("\n"):
        if HOLES.search(line):
            line = _FIRST.sub(_first, _RUN.sub(_note, _BRACKET.sub(_bracket, line)))
        plain = line.lstrip(_MARKERS).rstrip()
        prose = _WORD.search(line) is not None and line.strip()[0] not in "*#:;=|!"
        joins = not plain or (follows and prose) or (displayed and plain[0].islower())
        if shown := not _WORD.search(line) and _SHOWN.search(line) is not None:
            joins = last.rstrip("\"'”’»）)]")[-1:] not in ".!?:=。！？：।…"
        if not joins:
            blocks.append([])
        blocks[-1].append(line)
        follows = prose
        if plain:
            last, displayed = plain, shown
    return "\n".join([line for block in blocks for line in _whole(block, language, counts)][1:])


def _whole(block: list[str], language: str, counts: Counter[str]) -> list[str]:
    """Return the lines of a paragraph or item without its sentences that have a hole."""
    if not any(map(HOLES.search, block)):
        return block
    if block[0][:1] in ("=", "|", "!"):
        return [HOLES.sub("", line) for line in block]
    line = " ".join([block[0], *(line.lstrip(_MARKERS) for line in block[1:])]).strip()
    item = line[: len(line) - len(line.lstrip(_MARKERS))]
    text = line[len(item) :]
    for sentence in split_sentences(text, language):
        if hole := HOLES.search(sentence):
            text = text.replace(sentence, "", 1)  # with a space on either side, or with none in Chinese
            counts.update([f"sentences left out that lack {KINDS[hole[0]]}"] * (_WORD.search(sentence) is not None))
    return [item + text.replace("  ", " ").replace("。 ", "。").strip(), ""]


_FUNCTION = re.compile(r"\\(log|ln|exp|sin|cos|tan|max|min|lim|det|dim|gcd|deg|mod)(?![A-Za-z])")
_STYLE = re.compile(
    r"\\(?:(?:math|text)(?:rm|bf|it|sf|tt|bb|cal|frak|scr|normal)|text(?:style)?|mbox|operatorname|boldsymbol"
    r"|(?:display|script)style|rm|bf|it|left|right|q?quad)(?![A-Za-z])\s*+|\\[,;:! ]|~"
)
_GROUP = re.compile(r"(?<![\^_])\{([\w\s.]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_NAMES = {"infty": "∞", "cdot": "·", "to": "→", "neq": "≠", "dots": "…", "ldots": "…", "cdots": "…"}
_SCRIPT = re.compile(r" ?(?:(\^)|_) ?(?:\{ ?(-?\w{1,4}) ?\}|(-?\w))")
_SPOKEN = re.compile(r"[\w .,:;()+−=<>≤≥≠≈±×·÷/'|!^*→←∞∈⊂≡∼…%°′-]{1,32}")


def spoken(formula: str) -> str:
    """Return a short formula of TeX as plain text, such as `x`, `H2O` or `x^2 + y^2 = r^2`; empty if it has none."""
    text = _GROUP.sub(r"\1", _STYLE.sub(" ", _FUNCTION.sub(r" \1 ", formula)))
    text = _COMMAND.sub(lambda name: _NAMES.get(name[1]) or html.entities.html5.get(f"{name[1]};", name[0]), text)
    scripted = _SCRIPT.sub(lambda at: (at[1] or LOWERED) + (at[2] or at[3]) + EVEN, " ".join(text.split()))
    text = plain_heights(scripted).replace("( ", "(").replace(" )", ")")
    return text if _SPOKEN.fullmatch(text) and _WORD.search(text) else ""
