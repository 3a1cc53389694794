"""Sentence splitting with `sentencex` (Wikimedia), which has rules for 300 languages."""

import re

from sentencex import segment

from pipeline.common.language_codes import wikipedia_code
from pipeline.errors import is_panic

# Longer sentences are cut, and those of more tokens than fit into a pair again where pairs are made.
# Encyclopaedias have none of that length; in books these are lists and verse without full stops.
LONGEST = 2048

# In text without spaces the library looks back from each end of a sentence to the last space: twice
# the characters take four times as long, 400,000 of them 15 s. Longer runs are broken.
LONGEST_RUN = 10_000
_RUN = re.compile(rf"(?<![^ \n])[^ \n]{{{LONGEST_RUN + 1},}}")
# It looks for the end of a quotation up to the end of the line, and again at the next one: lines with many that it
# does not find, as of »Hej.» or „Hallo.”, are broken too, after a sentence where there is one.
_OPENINGS = (("«", "»"), ("»", "«"), ("‹", "›"), ("‘", "’"), ("“", "”„"), ("„", "“"))
_LOOKS = 10**9  # characters that are looked at for a line: half a second
_PART = re.compile(rf".{{1,{LONGEST_RUN}}}(?<=[.!?»«›’”“]) |.{{1,{LONGEST_RUN}}} |.{{1,{LONGEST_RUN}}}")
# Marks that end a sentence without a space behind them, and quotes that they close.
_CLOSED = r"[”’»」』）》〉\"')\]]*"
_END = re.compile(rf"(?:[。！？｡．।॥။።]|(?<=[^\0-\x7f])[!?])+{_CLOSED}")
# Those of Khmer, Tibetan, Amharic and Santali, which the library does not know.
_MORE = "[༎༏༐༑༔།]"  # may follow one another: where they begin, none is before
_UNKNOWN = re.compile(rf"(?<!{_MORE})(?<!{_MORE} )(?:[៕༎༏༐༑༔།᱾᱿]|፡፡|។(?!ល។))(?: ?{_MORE})*+{_CLOSED} *(?=[^ \n])")
_MARKS = "៕༎༏༐༑༔།᱾᱿፡។"  # one of which each end above has: a look for them is 20 times as fast
# Brackets that begin a sentence, but close the one before.
_CLOSERS = frozenset(")]}）］｝〕】》〉」』")
_CLOSING = re.compile(f"(?: ?[{re.escape(''.join(sorted(_CLOSERS)))}])+")

_PIECE = re.compile(
    rf".{{1,{LONGEST}}}(?=\s|$)"  # up to the last space that fits,
    rf"|.{{1,{LONGEST}}}(?<=[、，；：。])"  # else the last punctuation that fits,
    rf"|.{{1,{LONGEST}}}",  # else at the limit
    re.DOTALL,
)


def split_sentences(text: str, language: str, *, by_lines: bool = False) -> list[str]:
    """Return the sentences of a cleaned text, stripped, in order, none of them empty.

    A sentence never spans two lines; with `by_lines` every line is one sentence. The rules of
    English apply to a `language` that the library does not know.
    """
    if by_lines:
        lines = filter(None, map(str.strip, text.split("\n")))
        return [piece for line in lines for piece in _capped(line)]
    language = wikipedia_code(language)
    if not text.isascii():
        if any(map(text.__contains__, _MARKS)):
            text = _UNKNOWN.sub(r"\g<0>\n", text)
        if len(text) ** 2 > _LOOKS and _looks(text) > _LOOKS:  # a mark is looked for once a character at most
            cut = (_PART.findall(line) if _looks(line) > _LOOKS else [line] for line in text.split("\n"))
            text = "\n".join("\n".join(parts) for parts in cut)
    if _has_run(text):
        text = _RUN.sub(_broken, text)
    # The library takes blank lines as paragraph ends: one call per document is enough, and an open
    # quote does not extend beyond its line.
    parts = _segment(language, text.replace("\n", "\n\n"))
    if parts is None:
        parts = []
        for line in text.split("\n"):
            parts += [*(_segment(language, line) or [line]), "\n"]
    sentences, before = list[str](), "\n"
    for part in parts:
        sentence = part.strip()
        if sentence[:1] in _CLOSERS:
            spaced = before[len(before.rstrip()) :] + part
            if closing := _CLOSING.match(spaced):
                sentences[-1] += closing[0]
                part = spaced[closing.end() :]
                sentence = part.strip()
        before = part
        if sentence:
            sentences.append(sentence)
    if max(map(len, sentences), default=0) > LONGEST:
        sentences = [piece for sentence in sentences for piece in _capped(sentence)]
    return sentences


def _looks(text: str) -> int:
    """Return about how many characters the library looks at for quotations that do not end."""
    missing = (text.count(mark) - sum(map(text.count, ends)) for mark, ends in _OPENINGS)
    return len(text) * sum(max(0, count) for count in missing)


def _has_run(text: str) -> bool:
    """Return whether a cleaned text may have a run of more than `LONGEST_RUN` characters.

    Such a run fills one of the windows; a look at their first words is much faster than a search.
    """
    size = LONGEST_RUN // 2
    return any(
        text.find(" ", start, start + size) < 0 and text.find("\n", start, start + size) < 0
        for start in range(0, len(text) - size, size)
    )


def _broken(run: re.Match[str]) -> str:
    """Return a run as lines that end at the first end of a sentence beyond `LONGEST_RUN`."""
    lines, start = [], 0
    for end in _END.finditer(run[0]):
        if end.end() - start >= LONGEST_RUN:
            lines.append(run[0][start : end.end()])
            start = end.end()
    return "\n".join([*lines, run[0][start:]])


def _segment(language: str, text: str) -> list[str] | None:
    """Call the library; return None if it fails.

    Version 1.0.32 slices inside a character on some texts with white space that `clean` removes.
    """
    try:
        return list(segment(language, text))
    except BaseException as error:
        if not is_panic(error):
            raise
        return None


def _capped(sentence: str) -> list[str]:
    """Cut a sentence into pieces of at most `LONGEST` characters."""
    if len(sentence) <= LONGEST:
        return [sentence]
    return [piece for part in _PIECE.findall(sentence) if (piece := part.strip())]
