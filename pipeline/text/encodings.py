"""Encoding detection: a byte order mark, else UTF-8, else a legacy encoding of the language.

Text that is UTF-8 but for a few torn letters is UTF-8. Bytes with control characters are UTF-16 or
UTF-32 without a mark if these make text of them, as UTF-8 and most legacy encodings take any.

Detectors that see only the bytes are often wrong on short or mostly ASCII text. The candidates are
therefore the legacy encodings of the corpus's language; that one is taken in which its letters are frequent.
"""

import codecs
import contextlib
import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from pipeline.common.language_codes import base_code
from pipeline.common.tables import read_table
from pipeline.storage.placeholders import find_placeholder

_TABLES = read_table(__file__, "encodings.yaml")
_LEGACY: dict[str, list[str]] = {
    one: names.split() for names, several in _TABLES["encodings"].items() for one in several.split() or [""]
}
_LETTERS = [(several.split(), letters) for several, letters in _TABLES["letters"].items()]

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNMARKED = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
# Text has such characters, or few blocks of 256; in the other byte order it has neither.
_COMMON = frozenset(" \n\r\t.,:;!?'\"()-0123456789\u3000、。，．：；！？「」『』（）・…·“”‘’।॥،۔؟። ")
_BLOCKS = 2
# By escapes: of letters in seven bits.
_ESCAPED = {"iso2022_kr": b"\x1b$)C", "iso2022_jp_2": b"\x1b$", "hz": b"~{"}
# Two printable bytes of ASCII are a Chinese character in UTF-16; more are text with zeros in it.
_ASCII_SHARE = 0.75

# Other formats by their first bytes: what is text in the eyes of `is_binary`, or may be if it is short.
FORMATS = re.compile(
    rb"%PDF-|%!PS-|\{\\rtf\d|PK[\3\5]|7z\xbc\xaf|Rar!\x1a|LZIP|BZh[1-9]1AY|\x1f[\x8b\x9d]|\xfd7zXZ|\x28\xb5\x2f\xfd"
    rb"|\x04\x22M\x18|\xff\x06\0\0sNaPpY|\]\0\0[\x80\0]|SQLite format|PAR1|ARROW1|bplist|\x7fELF|\xd0\xcf\x11\xe0"
    rb"|\x89PNG|\xff\xd8\xff|GIF8|\x89HDF|\x80[\2-\5]|d\d+:announce|(?:\xef\xbb\xbf)?\s*<(?:\?xml|svg|rss|feed|plist|mediawiki)\b"
    rb"|HTTP/\d(?:\.\d)? \d{3}\b|WARC/\d|MIME-Version:|\[(?:InternetShortcut|Desktop Entry)\]|magnet:\?"
)
FORMAT = "of another format, not text; convert it to text, or leave it out"

BINARY = "binary, not text; convert it to text, or leave it out"
CONTROL_SHARE = 0.01  # content with a larger share of control characters is binary
LATIN_SHARE = 0.3  # of letters beyond ASCII in a text; Icelandic has 0.13
FEW_BEYOND = 20  # of them in any text, however short
FEW_CONTROLS = 8  # control characters allowed in any text, however short
# Control characters that do not occur in text, as in file(1): all but BEL to CR, and ESC.
_CONTROLS = bytes(sorted({*range(32), 127} - {*range(7, 14), 27}))

_HIGH = bytes(range(0x80, 0x100))
_ASCII = dict.fromkeys(range(0x80))
_WORD = re.compile(r"[^\W\d_ªº]+")
# Marks that may stand between letters, and others where no western text has them, as they are letters elsewhere.
_IN_WORDS = frozenset("’—…\xa0")
_MISPLACED = re.compile(r"·|(?<=[^\W\d_])(?:[„¿¡•°§£€№]|[“”‘«»–ªº](?=[^\W\d_]))")
# Torn UTF-8 has more letters beyond ASCII per torn place than this. Re-encoded in the encodings of
# their languages, texts in 15 languages have at most 0.4, their 40,000 lines at most 3.
TORN = 4
TORN_LINE = 1  # of a line in a file of UTF-8, where a legacy encoding is unlikely

# One Cyrillic encoding read as another: capitals are small letters, and small ones capitals.
_SWAPPED, _CAPITALS = re.compile(r"[а-яё](?<=\b.)[А-ЯЁ]+\b"), "АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ"
SWAPPED = "in another Cyrillic encoding than stated, as KOI8-R instead of windows-1251; correct corpus.encoding"

_DECLARED = re.compile(
    rb"""\s*<\?xml[^>]*?\bencoding\s*=\s*["']([\w.:-]+)"""
    rb"""|.*?<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE | re.DOTALL,
)
_HEAD = 1024  # bytes in which a page declares its encoding
SAMPLE = 1 << 16  # bytes used to choose among several candidates

# By byte; the five that cp1252 leaves open become the control characters of Latin-1.
CP1252 = {b: bytes([b]).decode("cp1252", "ignore") or chr(b) for b in range(0x80, 0xA0)}


class Decoded(NamedTuple):
    """Decoded text and its encoding."""

    text: str
    encoding: str
    whole: bool  # no bytes had to be replaced


def candidates(language: str) -> list[str]:
    """Return the legacy (pre-UTF-8) encodings of the language."""
    return _LEGACY.get(base_code(language), _LEGACY[""])


def meant(name: str) -> str:
    """Return the encoding that is meant by a name: cp1252 where Latin-1 is said."""
    return str(_TABLES["meant"].get(codecs.lookup(name).name, name))


@lru_cache
def _letters(language: str) -> frozenset[str]:
    """Return the letters beyond ASCII that tell a language from others."""
    return frozenset("".join(letters for several, letters in _LETTERS if language in several))


def likeness(text: str, language: str) -> float:
    """Return the share of a language's letters in what is not ASCII; a capital and a mark are half a letter.

    Of western languages, whose quotes and letters are each other's in another encoding, most marks are whole letters,
    and letters of the others, as in names, half. Marks in words, single letters, words with capitals inside are none.
    """
    known, half, beyond = _letters(base_code(language)), _TABLES["marks"], text.translate(_ASCII)
    size = len(beyond)
    if candidates(language) is _LEGACY[""]:
        beyond = _WORD.sub(_word, _MISPLACED.sub("", text)).translate(_ASCII)
        known, half = known.union(half) - _IN_WORDS, _TABLES["letters"][""] + "".join(_IN_WORDS)
    count = sum(1 if char in known else 0.5 if char.lower() in known or char.lower() in half else 0 for char in beyond)
    return count / max(size, 1)


def _word(match: re.Match[str]) -> str:
    word = match[0]
    return word if len(word) > 1 and word in (word.lower(), word.upper(), word.capitalize()) else ""


def marked(raw: bytes) -> str | None:
    """Return the encoding that a byte order mark states, or None without one."""
    return next((name for mark, name in _MARKS.items() if raw.startswith(mark)), None)


def detect(raw: bytes, language: str, *, final: bool = True) -> str:
    """Return the encoding of a text, or of its beginning (`final=False`)."""
    if sure := marked(raw) or escaped(raw, language) or wide(raw):
        return sure
    if _fits(raw, "utf-8", final) or is_torn_utf8(raw, final=final):
        return "utf-8"
    # Some lines of a legacy file may be UTF-8.
    beyond = (line for line in raw.splitlines(keepends=True) if not _fits(line, "utf-8", True))
    lines = b"".join(islice(beyond, SAMPLE >> 6))
    sample = lines[max(0, len(lines) - len(lines.lstrip(bytes(range(0x80)))) - 1) :][:SAMPLE]  # with a letter before
    return max(candidates(language), key=lambda name: likeness(sample.decode(name, "replace"), language))


def escaped(raw: bytes, language: str) -> str | None:
    """Return the encoding of text in seven bits whose letters follow escapes; None for anything else."""
    if not raw.isascii():
        return None
    known = {name: mark for name, mark in _ESCAPED.items() if name != "hz" or base_code(language) == "zh"}
    return next((name for name, mark in known.items() if mark in raw and _fits(raw, name, False)), None)


def in_line(raw: bytes, language: str, name: str) -> Decoded:
    """Decode a line in a file of encoding `name`; some lines may be in UTF-8, or in another one, all the same."""
    if not (raw.isascii() or name.startswith("utf-")) and _fits(raw, "utf-8", True):
        text, other = raw.decode(), raw.decode(name, "replace")
        if likeness(text, language) > likeness(other, language):
            return Decoded(text, name, True)
    try:
        return Decoded(plain(raw, name), name, True)
    except UnicodeError:
        if name.startswith("utf-8") and is_torn_utf8(raw, TORN_LINE):
            return Decoded(raw.decode(name, "replace"), name, False)
        return decode(raw, language, detect(raw, language))


def wide(raw: bytes) -> str | None:
    """Return the encoding of text in UTF-16 or UTF-32 without a mark; None for anything else."""
    sample = raw[: SAMPLE & ~3]
    if _controls_in(sample) <= CONTROL_SHARE * len(sample):
        return None
    pairs = zip(sample[::2], sample[1::2], strict=False)
    ascii_pairs = sum(0x20 <= first < 0x7F and 0x20 <= second < 0x7F for first, second in pairs)
    if 2 * ascii_pairs > _ASCII_SHARE * len(sample):
        return None
    ranks = {}
    for name in _UNMARKED:
        try:
            text = codecs.getincrementaldecoder(name)("strict").decode(sample)
        except UnicodeError:
            continue
        counts = Counter(text.rstrip("\0"))
        size = sum(counts.values())
        odd = sum(count for char, count in counts.items() if _is_odd(char))
        common = sum(count for char, count in counts.items() if char in _COMMON)
        blocks = len({ord(char) >> 8 for char in counts})
        if size and odd <= CONTROL_SHARE * size and (common or blocks <= _BLOCKS):
            ranks[name] = (-blocks, common)
    return max(ranks, key=ranks.__getitem__, default=None)


def _is_odd(char: str) -> bool:
    """Return whether a character is not of text: a control, unassigned, or for private use."""
    return unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") and char not in "\n\r\t\f\v\x85"


def is_torn_utf8(raw: bytes, least: int = TORN, *, final: bool = True) -> bool:
    """Return whether `raw` has more than `least` letters of several bytes per torn place."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final)
    torn = text.count("\ufffd") - raw.count("\ufffd".encode())
    beyond_ascii = len(text) - len(raw.translate(None, _HIGH))
    return beyond_ascii - torn > least * torn


def decode(raw: bytes, language: str, encoding: str | None = None) -> Decoded:
    """Decode `raw` in the stated encoding, else in the detected one, line by line where lines are in others."""
    name = meant(encoding) if encoding else detect(raw, language)
    if codecs.lookup(name).name in ("utf-16", "utf-32") and marked(raw) is None:
        ordered = wide(raw) or ""  # Python would take the order of this machine
        if not ordered.startswith(codecs.lookup(name).name):
            return Decoded(raw.decode(name, "replace"), name, False)
        name = ordered
    if encoding or name not in candidates(language):
        try:
            return Decoded(plain(raw, name).removeprefix("\ufeff"), name, True)
        except UnicodeError:
            if encoding or not name.startswith("utf-8"):
                return Decoded(raw.decode(name, "replace").removeprefix("\ufeff"), name, False)
    lines = [in_line(line, language, name) for line in raw.splitlines(keepends=True)]
    return Decoded("".join(one.text for one in lines).removeprefix("\ufeff"), name, all(one.whole for one in lines))


def decode_page(raw: bytes, language: str, encoding: str | None) -> str:
    """Return the text of a page: by a byte order mark, as declared, as stated, or as detected."""
    match = _DECLARED.match(raw[:_HEAD])
    declared = (match[1] or match[2]).decode() if match else ""
    if marked(raw) or wide(raw):
        return decode(raw, language).text
    # What is UTF-8 is nothing else, but for letters in seven bits.
    for name in (declared, encoding or "") if raw.isascii() else ("utf-8", declared, encoding or ""):
        # A declaration that can be read as ASCII is not of UTF-16.
        if not name or name.lower().startswith(("utf-16", "utf-32", "ucs")):
            continue
        with contextlib.suppress(LookupError, UnicodeError):
            if not is_swapped(text := plain(raw, meant(name))):
                return text
    return decode(raw, language).text


def plain(raw: bytes, name: str) -> str:
    """Decode strictly, but for cp1252, which maps every byte, C1 controls included."""
    return raw.decode("latin-1").translate(CP1252) if name == "cp1252" else raw.decode(name)


def fault(raw: bytes, text: str, guessed: str | None = None) -> str | None:
    """Return why a file, or its beginning, is not text: `raw`, decoded as `text`; None if it is.

    `guessed` is an encoding that was not stated.
    """
    if is_binary(raw, text):
        return BINARY
    if is_swapped(text):
        return SWAPPED
    if guessed in _LEGACY[""] and _of_another_script(raw):
        return f"not {guessed}: too many letters are beyond ASCII; set corpus.language or corpus.encoding"
    return find_placeholder(text) or (FORMAT if FORMATS.match(raw) else None)


def is_swapped(text: str) -> bool:
    """Return whether most letters are capitals, and those that begin a word are not: of Cyrillic read wrongly."""
    head = text[:SAMPLE]
    if head.isascii() or len(_SWAPPED.findall(head)) < 2:  # nearly all: letters are counted in the others alone
        return False
    return sum(map(head.count, _CAPITALS)) > sum(map(head.count, _CAPITALS.lower()))


def _of_another_script(raw: bytes) -> bool:
    """Return whether a text has more bytes beyond ASCII than one in Latin letters."""
    written = raw.translate(None, b" \t\r\n")
    beyond = len(written) - len(written.translate(None, _HIGH))
    return beyond > max(LATIN_SHARE * len(written), FEW_BEYOND)


def is_binary(raw: bytes, text: str) -> bool:
    """Return whether `raw`, decoded as `text`, has more than 1 % control characters.

    cp1252 decodes any bytes, even those of a program. Zeros at the end are padding.
    """
    return _many_controls(raw) and _many_controls(text.encode("utf-8", "replace"))


def _many_controls(data: bytes) -> bool:
    data = data.rstrip(b"\0")
    return _controls_in(data) > max(CONTROL_SHARE * len(data), FEW_CONTROLS)


def _controls_in(data: bytes) -> int:
    return len(data) - len(data.translate(None, _CONTROLS))


def line_ends(text: str) -> str:
    """Return the prevailing line end of the text: LF, CRLF or CR."""
    if "\r" not in text:
        return "LF"
    return "CR" if "\n" not in text else "CRLF" if "\r\n" in text else "LF"


def _fits(raw: bytes, name: str, final: bool) -> bool:
    try:
        codecs.getincrementaldecoder(name)("strict").decode(raw, final)
    except UnicodeError:
        return False
    return True
