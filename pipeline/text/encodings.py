"""Encoding detection: a byte order mark, else UTF-8, else a legacy encoding of the language.

Text that is UTF-8 but for a few torn letters is UTF-8. Bytes with control characters are UTF-16 or
UTF-32 without a mark if these make text of them, as UTF-8 and most legacy encodings take any.

Detectors that see only the bytes are often wrong on short or mostly ASCII text. The candidates are
therefore the legacy encodings of the corpus's language; if several fit, `charset-normalizer`
chooses by letter frequencies.
"""

import codecs
import unicodedata
from collections import Counter
from dataclasses import dataclass

from pipeline.common import data_files
from pipeline.common.language_codes import base_code
from pipeline.text.stand_ins import stand_in

WESTERN = ("cp1252",)
_LEGACY = {language: tuple(names.split()) for language, names in data_files.of(__file__).items()}

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
# Two printable bytes of ASCII are a Chinese character in UTF-16; more are text with zeros in it.
_ASCII_SHARE = 0.75

BINARY = "binary, not text; convert it to text, or leave it out"
CONTROL_SHARE = 0.01  # content with a larger share of control characters is binary
FEW_CONTROLS = 8  # control characters allowed in any text, however short
# Control characters that do not occur in text, as in file(1): all but BEL to CR, and ESC.
_CONTROLS = bytes(sorted({*range(32), 127} - {*range(7, 14), 27}))

_HIGH = bytes(range(0x80, 0x100))
# Torn UTF-8 has more letters beyond ASCII per torn place than this. Re-encoded in the encodings of
# their languages, texts in 15 languages have at most 0.4, their 40,000 lines at most 3.
TORN = 4
TORN_LINE = 1  # of a line in a file of UTF-8, where a legacy encoding is unlikely

SAMPLE = 1 << 16  # bytes used to choose among several candidates

# By byte; the five that cp1252 leaves open become the control characters of Latin-1.
CP1252 = {b: bytes([b]).decode("cp1252", "ignore") or chr(b) for b in range(0x80, 0xA0)}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded text and its encoding."""

    text: str
    encoding: str
    whole: bool  # no bytes had to be replaced


def candidates(language: str) -> tuple[str, ...]:
    """Return the legacy (pre-UTF-8) encodings of the language."""
    return _LEGACY.get(base_code(language), WESTERN)


def marked(raw: bytes) -> str | None:
    """Return the encoding that a byte order mark states, or None without one."""
    return next((name for mark, name in _MARKS.items() if raw.startswith(mark)), None)


def detect(raw: bytes, language: str, *, final: bool = True) -> str:
    """Return the encoding of a text, or of its beginning (`final=False`)."""
    if (stated := marked(raw)) is not None:
        return stated
    if (unmarked := wide(raw)) is not None:
        return unmarked
    if _fits(raw, "utf-8", final) or is_torn_utf8(raw, final=final):
        return "utf-8"
    known = candidates(language)
    fitting = [name for name in known if _fits(raw, name, final)] or list(known[:1])
    if len(fitting) > 1:
        from charset_normalizer import from_bytes  # slow to import, and rarely used

        first = next((at for at, byte in enumerate(raw) if byte > 0x7F), 0)
        best = from_bytes(raw[first : first + SAMPLE], cp_isolation=fitting).best()
        if best is not None and best.encoding in fitting:
            return best.encoding
    return fitting[0]


def wide(raw: bytes) -> str | None:
    """Return the encoding of text in UTF-16 or UTF-32 without a mark; None for anything else."""
    sample = raw[: SAMPLE & ~3]
    if _controls_in(sample) <= CONTROL_SHARE * len(sample):
        return None
    pairs = zip(sample[::2], sample[1::2], strict=False)
    ascii_pairs = sum(0x20 <= first < 0x7F and 0x20 <= second < 0x7F for first, second in pairs)
    if 2 * ascii_pairs > _ASCII_SHARE * len(sample):
        return None
    found = {}
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
            found[name] = (-blocks, common)
    return max(found, key=found.__getitem__, default=None)


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
    """Decode `raw` in the stated encoding, else in the detected one."""
    name = encoding or detect(raw, language)
    if codecs.lookup(name).name in ("utf-16", "utf-32") and marked(raw) is None:
        ordered = wide(raw) or ""  # Python would take the order of this machine
        if not ordered.startswith(codecs.lookup(name).name):
            return Decoded(raw.decode(name, "replace"), name, False)
        name = ordered
    if name == "cp1252":  # maps every byte, C1 controls included
        return Decoded(raw.decode("latin-1").translate(CP1252), name, True)
    try:
        return Decoded(raw.decode(name).removeprefix("\ufeff"), name, True)
    except UnicodeError:
        return Decoded(raw.decode(name, "replace").removeprefix("\ufeff"), name, False)


def fault(raw: bytes, text: str) -> str | None:
    """Return why a file, or its beginning, is not text: `raw`, decoded as `text`; None if it is."""
    return BINARY if is_binary(raw, text) else stand_in(text)


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
    if name == "cp1252":
        return True
    try:
        codecs.getincrementaldecoder(name)("strict").decode(raw, final)
    except UnicodeError:
        return False
    return True
