"""One tag per word: named entities in CoNLL's columns (Tjong Kim Sang and De Meulder 2003)."""

import collections
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import PurePath
from typing import Any
from unicodedata import normalize

import numpy as np

from model.finetuning.features import UNLABELLED, Samples, frame, texts
from pipeline.common.schema import check
from pipeline.common.tables import read_table
from pipeline.config import TaskConfig
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError
from pipeline.evaluation import examples, table_files
from pipeline.evaluation.exact_search import UNSPACED
from pipeline.evaluation.input_rows import NAMES, TAGGED
from pipeline.evaluation.task_types import Dataset, Given, Keep, Logits, Scores, TaskType, chosen
from pipeline.text import tables
from pipeline.tokenization.wordpiece import WordPiece

Tags = list[str]  # of a sentence
Sentence = tuple[list[str], Tags]  # words, tags
Parsed = tuple[list[Sentence], list[str]]  # sentences, malformed lines
OUTSIDE = "O"
ALONE = ("S", "U")  # prefixes of an entity of one word
EMPTY = (OUTSIDE, "o", "_")  # no entity, whatever other tags are
PREFIXES = (OUTSIDE, "B", "I", "M", "E", "L", *ALONE)
NO_ENTITY = ("0", "-", "none", "null", "other", "out", "outside")  # where no tag is O
TOKENS, TAGS = ("tokens", "words"), ("ner_tags", "tags")  # columns of rows, unless the task names others
Spans = list[tuple[int, int]]
INNER = 20  # of as many times that a mark is there, once within a word
LONGEST = 128  # words of a file that is one sentence
FEWEST = 20  # words of a file, from which on most have not each a tag of its own
FORM = (
    "write a word and its tag a line, a tab between, and an empty line after each sentence, or rows of tokens and "
    "ner_tags in JSON lines or Parquet"
)
COMMANDS = read_table(__file__, "csv_commands.yaml")
_INDEX = re.compile(r"-?\d+")
_TAG = re.compile(f"[{OUTSIDE}0_-]|[{''.join(PREFIXES[1:])}][-_:].+")
# Tags as of CoNLL-2012, of WebAnno, and in MISC of CoNLL-U.
_FORMS = re.compile(r"\(.+|.+\[\d+\]|(?:\w++=[^|]*+\|)*(?:(?:Spaces?(?:After|Before)|NE)=|\w++=[BIESLUM][-_]).*")
_BEGUN = re.compile(f"[BI{''.join(ALONE)}][-_]", re.IGNORECASE)
_LISTS = re.compile("\"\\['[^']*'(.)")  # in a field of CSV, and what divides their items
_LANGUAGE = re.compile(r"[a-z-]{2,12}:")  # before each word of WikiANN: `en:Anna`
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ID = re.compile(r"\d+([-.]\d+)?")  # in CoNLL-U, of a word, or of a range of words or one that is not written


@dataclass(frozen=True)
class Window:
    """The words of a sentence that form one sequence."""

    sentence: int
    first: list[int]  # position of each word's first piece


class Tagging(TaskType):
    """The task type of tags, predicted at each word's first piece (Devlin et al. 2019, 5.3)."""

    head = "tag"

    def __init__(self, data: str, task: TaskConfig, wordpiece: WordPiece, longest: int):
        self._data, self._task, self._wordpiece = data, task, wordpiece
        self._longest = longest
        self.names = self.tags = task.labels or self._tags_of(task.train)
        self.outputs = len(self.tags)

    def _tags_of(self, name: str) -> Tags:
        """Return the tags of a file; InputError if they are one, or nearly as many as words, as of another column."""
        every = [tag for _, tags in self._sentences(name)[0] for tag in tags]
        distinct = sorted({*every})
        if len(distinct) < 2 or len(every) >= FEWEST < 2 * len(distinct) > len(every):
            few = ", ".join(map(repr, distinct[:3]))
            problem = f"its {len(every):,} words have {pluralize(len(distinct), 'tag')}: {few}; set task.label=COLUMN"
            raise InputError(problem, "task.label", self._task.label, path=name)
        return distinct

    def _sentences(self, name: str, labelled: bool = True) -> Parsed:
        place, content = examples.need(self._data, self._task, name)
        columns = [*(self._task.columns or ["0"]), *([self._task.label] if labelled else [])]
        if (objects := table_files.objects_of(place, content, self._task.key, cure=FORM)) is not None:
            return name_numbers(place, of_rows(place, *objects, columns), self._task.labels)
        check(
            all(map(_INDEX.fullmatch, columns)),
            "must be indices where columns have no names, from 0, or from the end: -1",
            "task.columns",
            f"{self._task.columns}, task.label={self._task.label}",
        )
        return name_numbers(place, parse(place, content, [int(column) for column in columns]), self._task.labels)

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """See `TaskType`."""
        sentences, malformed = self._sentences(name, labelled)
        kept = chosen(sentences, keep, lambda sentence: " ".join(sentence[0]), rows)
        return self.part_of(kept, labelled, malformed, name)

    def part_of(self, sentences: list[Sentence], labelled: bool, malformed: list[str], name: str) -> Dataset:
        """Convert sentences to samples.

        Raises:
            InputError: a tag is not one of the task's.
        """
        known = {tag: number for number, tag in enumerate(self.tags)}
        unknown = {tag for _, tags in sentences for tag in tags} - set(known)
        if unknown:
            problem = f"tag {min(unknown)!r} is not one of {', '.join(self.tags)}; list all tags in task.labels"
            raise InputError(problem, "task.labels", path=name)
        windows, ids, labels = [], [], []
        for index, (words, tags) in enumerate(sentences):
            numbers = [known[tag] for tag in tags] or [UNLABELLED] * len(words)
            for window, sequence, label in self._windows(index, words, numbers):
                windows.append(window)
                ids.append(sequence)
                labels.append(label)
        second = np.array([len(sequence) for sequence in ids])
        truth = [tags for _, tags in sentences] if labelled else []
        extra = (windows, [words for words, _ in sentences])
        return Dataset(Samples(ids, second, labels), truth, extra, malformed)

    def _windows(self, index: int, words: list[str], tags: list[int]) -> Any:
        """Yield a sentence as sequences of whole words; only overlong words lose pieces."""
        words = self._wordpiece.within_text(words, (place > 0 for place in range(len(words))))
        room, unknown = self._longest - 2, [self._wordpiece.unk]
        pieces = [part[:room] if len(part) else np.array(unknown) for part in texts(self._wordpiece, words)]
        before = np.cumsum([0, *map(len, pieces)])  # pieces before each word
        start = 0
        while start < len(words):
            end = int(np.searchsorted(before, before[start] + room, "right")) - 1
            first = (1 + before[start:end] - before[start]).tolist()
            label = np.full(before[end] - before[start] + 2, UNLABELLED, np.int64)
            label[first] = tags[start:end]
            sequence, _ = frame(self._wordpiece, np.concatenate(pieces[start:end]), None)
            yield Window(index, first), sequence, label
            start = end

    def decode(self, part: Dataset, logits: Logits) -> Given:
        """Return one tag per word, by sentence."""
        windows, sentences = part.extra
        tags: list[Tags] = [[] for _ in sentences]
        for window, values in zip(windows, logits, strict=True):
            best = values[window.first].argmax(-1)
            tags[window.sentence] += [self.tags[number] for number in best]
        return tags

    def score(self, part: Dataset, answers: Given) -> Scores:
        """Return the scores of `entity_scores`."""
        return entity_scores(part.truth, answers, self.tags)

    def majority_baseline(self, part: Dataset) -> Scores:
        """Score always predicting the most frequent tag, normally that of no entity."""
        flat = [tag for tags in part.truth for tag in tags]
        most = max(sorted(set(flat)), key=flat.count)
        return entity_scores(part.truth, [[most] * len(tags) for tags in part.truth], self.tags)

    def export(self, part: Dataset, answers: Given) -> dict[str, str]:
        """Return lines of word, true tag and predicted tag, the input of conlleval."""
        blocks = (
            "".join(map("{} {} {}\n".format, words, tags, given))
            for words, tags, given in zip(part.extra[1], part.truth, answers, strict=True)
        )
        return {"predictions.conll": "\n".join(blocks)}

    def marks(self, part: Dataset) -> dict[str, Any]:
        """See `TaskType`."""
        return words_of(part.extra[1])


def is_mark(letter: str) -> bool:
    """Return whether a character is punctuation or a symbol."""
    return unicodedata.category(letter)[0] in "PS"


def words_of(sentences: list[list[str]]) -> dict[str, Any]:
    """Return what words of a file are, as `Reading` has it: the punctuation that they keep, or not; `characters`."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for word in (word for word in chain.from_iterable(sentences) if not word.isalnum()):
        places = [place for place, letter in enumerate(word) if is_mark(letter)]
        for place in places:
            side = "starts" if place == 0 else "ends" if place == len(word) - 1 else "divides"
            counts[word[place], "alone" if len(places) == len(word) else side] += 1
    marks = sorted({mark for mark, _ in counts})
    apart = {side: [one for one in marks if counts[one, side] > counts[one, "alone"]] for side in ("starts", "ends")}
    # Within words a mark is rare, as the point of U.S. next to those of sentences.
    others = {one: sum(counts[one, side] for side in ("alone", "starts", "ends")) for one in marks}
    apart["divides"] = [one for one in marks if INNER * counts[one, "divides"] < others[one]]
    unspaced = [word for word in chain.from_iterable(sentences) if _UNSPACED.match(word)]
    characters = INNER * sum(len(word) > 1 for word in unspaced) < len(unspaced)
    return {"characters": characters, **{side: "".join(some) for side, some in apart.items()}}


def words_in(text: str, starts: str, ends: str, divides: str, characters: bool = False) -> Spans:
    """Return where the words of a text are: between blanks, punctuation apart, and characters, as by `words_of`.

    A text in which a comma or a full stop is alone is divided already.
    """
    spans = [part.span() for part in re.finditer(r"\S+", text)]
    words: Spans = []
    if any(text[start:end] in (".", ",") for start, end in spans):
        return spans
    for start, end in spans:
        letters = [place for place in range(start, end) if not is_mark(text[place])] or [end]
        cuts = {start, end}
        cuts |= {at for one in _UNSPACED.finditer(text, start, end) for at in one.span()} if characters else set()
        for place in (place for place in range(start, end) if is_mark(text[place])):
            mark, inner = text[place], letters[0] < place < letters[-1]
            if mark not in divides if inner else mark in (starts if place < letters[0] else ends):
                continue
            if text[place - 1 : place] != mark and not (inner and mark in ends):
                cuts.add(place)
            if text[place + 1 : place + 2] != mark and not (inner and mark in starts):
                cuts.add(place + 1)
        words += pairwise(sorted(cuts))
    return words


def name_numbers(place: str, parsed: Parsed, labels: Tags) -> Parsed:
    """Return sentences with tags in place of numbers, where all are: their places in `labels`.

    Raises:
        InputError: a number has no name, or tags are of a form that would be read as types.
    """
    every = {tag for _, tags in parsed[0] for tag in tags}
    if every <= {*labels}:
        return parsed
    entities = {tag for tag in every if tag.casefold() not in (*EMPTY, *NO_ENTITY)}
    glued = sorted(tag for tag in entities if tag[0] == "B" and tag[1:2].isalpha() and f"I{tag[1:]}" in entities)
    if glued and all(tag.startswith(PREFIXES[1:]) for tag in entities):
        problem = f"tags such as {glued[0]} have no mark after B and I; write B-{glued[0][1:]}"
        raise InputError(problem, "task.label", path=place)
    if other := sorted(filter(_FORMS.fullmatch, every)):
        raise InputError(f"has tags in brackets or fields ({other[0]}); write B-, I- and O", "task.label", path=place)
    if not all(map(tables.NUMBER.fullmatch, every)):
        return parsed
    if lost := [tag for tag in every if not tag.isdecimal() or int(tag) >= len(labels)]:
        cure = "task.labels=[O,B-PER,I-PER] names 0, 1 and 2; if these are no tags, set task.label=COLUMN"
        raise InputError(f"tag {min(lost, key=float)} has no name; {cure}", "task.labels", path=place)
    return [(words, [labels[int(tag)] for tag in tags]) for words, tags in parsed[0]], parsed[1]


def of_rows(place: str, rows: list[dict[str, Any]], lines: list[int], columns: list[str]) -> Parsed:
    """Return sentences of rows of a list of words and one of tags, and malformed rows.

    Raises:
        InputError: which columns to read is not known, or no row is valid.
    """
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    if not any(isinstance(one, list) and {*map(type, one)} == {str} for row in rows for one in row.values()):
        raise InputError(f"has no lists of words; {FORM}", path=place)
    keys = [
        _column(place, names, *one)
        for one in zip(columns, (TOKENS, TAGS), ("task.columns", "task.label"), strict=False)
    ]
    sentences: list[Sentence] = []
    malformed = []
    for number, row in zip(lines, rows, strict=True):
        values: list[Any] = [row.get(key) for key in keys]
        words, *tags = values
        lists = all(isinstance(one, list) and len(one) == len(words) > 0 for one in values)
        if not lists or not all(isinstance(word, str) and word.strip() for word in words):
            malformed.append(f"{place}, row {number}: needs lists of as many texts {' and '.join(keys)}")
        elif not all(isinstance(tag, str | int) for tag in chain.from_iterable(tags)):
            malformed.append(f"{place}, row {number}: has tags that are neither texts nor numbers")
        else:
            sentences.append((words, [normalize("NFC", table_files.text_of(tag)) for tag in chain.from_iterable(tags)]))
    if not sentences:
        raise InputError(f"has no sentences; {malformed[0]}", path=place)
    return sentences, malformed


def _column(place: str, names: list[str], typed: str, usual: tuple[str, ...], key: str) -> str:
    """Return the column that a task names, or the usual one in place of an index."""
    columns = [name for name in ((typed,) if typed in names or not _INDEX.fullmatch(typed) else usual) if name in names]
    if len(columns) == 1:
        return columns[0]
    listed = ", ".join(map(repr, names))
    value = "[NAME]" if key == "task.columns" else "NAME"
    raise InputError(f"set {key}={value}, the column of {usual[0]}; there are {listed}", key, path=place)


def parse(place: str, content: bytes, columns: list[int]) -> Parsed:
    """Parse sentences of words and tags (none if `columns` has one entry), and malformed lines.

    A sentence ends at an empty line; columns are separated by tabs, or else by spaces. Other spaces
    of Unicode, such as the no-break space in a number, are part of a word. Comments are left out,
    as are ranges of words and empty nodes of CoNLL-U.

    Raises:
        InputError: the file has no sentences, or its first row names the columns.
    """
    sentences: list[Sentence] = [([], [])]
    malformed = []
    lines = [line.strip(" \t\r") for line in table_files.decode(place, content, FORM).split("\n")]
    filled = [line for line in lines if line.strip()]
    for mark, form in ((",", "CSV"), (";", "CSV"), ("\t", "a table")):
        divided = sum(mark in line and (mark == "\t" or "\t" not in line) for line in filled)
        if 10 * divided > 9 * len(filled) and (cure := as_columns(place, lines, mark)):
            raise InputError(f"is {form}; {FORM}{cure}", path=place)
    is_comment, width = _comments(filled, columns)
    if width > 1 and len({column % width for column in columns}) < len(columns):
        problem = f"columns {' and '.join(map(str, columns))} are one, of {width}; set task.columns or task.label"
        raise InputError(problem, "task.label", path=place)
    rows = [(n, _fields(line) if line.strip() else []) for n, line in enumerate(lines, 1) if not is_comment(line)]
    ids = [fields[0] for _, fields in rows if fields and "-DOCSTART-" not in fields]
    numbered = 0 not in columns and all(map(_ID.fullmatch, ids)) and 2 * sum(map(str.isdecimal, ids)) > len(ids)
    for number, fields in rows:
        if not fields or "-DOCSTART-" in fields:
            if sentences[-1][0]:
                sentences.append(([], []))
        elif numbered and not fields[0].isdecimal():
            continue
        elif not max(len(columns), max(columns) + 1, -min(columns)) <= len(fields) <= width:
            malformed.append(f"{place}, line {number}: {len(fields)} columns")
        elif any(" " in fields[column] for column in columns[1:]):
            malformed.append(f"{place}, line {number}: {fields[columns[1]]!r} is not one tag")
        else:
            sentences[-1][0].append(fields[columns[0]])
            sentences[-1][1].extend(normalize("NFC", fields[column]) for column in columns[1:])
    if not sentences[-1][0]:
        sentences.pop()
    widths = [len(fields) for _, fields in rows if fields]
    if not sentences or 2 * widths.count(width) < len(widths):
        raise InputError(f"has no sentences{'; ' + malformed[0] if malformed else ''}; {FORM}", path=place)
    if why := fault_of_words(columns[0], sentences):
        raise InputError(f"column {columns[0]} {why}", "task.columns", path=place)
    if len(sentences) == 1 and len(sentences[0][0]) > LONGEST:
        raise InputError(f"is one sentence of {len(sentences[0][0]):,} words; {FORM}", path=place)
    number, first = next(row for row in rows if row[1])
    table = [fields for _, fields in rows if len(fields) == len(first)]
    read = columns if len(columns) > 1 else [*columns, -1]  # without tags, there is a name at the end
    if 1 < len(first) > max(read) and names_columns(*([row[column] for row in table] for column in read)):
        raise InputError("names the columns; remove this line", path=place, line=number)
    if columns[1:] == [-1] and (others := other_tags(table, columns[0])):
        problem = f"has more columns of such tags; set task.label={others[0]} or {width - 1}"
        raise InputError(problem, "task.label", path=place)
    return sentences, malformed


def names_columns(words: list[str], tags: list[str]) -> bool:
    """Return whether the first row names the columns: its tag is nowhere else, and a name or alone without a prefix."""
    named = {words[0].casefold(), tags[0].casefold()} <= NAMES | TAGGED
    alone = {tag for tag in tags if not _TAG.fullmatch(tag)} == {tags[0]} and any(map(_BEGUN.match, tags))
    return (named or alone) and tags.count(tags[0]) == 1


def other_tags(rows: list[list[str]], words: int) -> list[int]:
    """Return the columns that have tags as the last one has, such as nested ones; all of tags, where it has none."""
    *others, last = ({*column} for column in zip(*(rows[1:] or rows), strict=True))  # the first may be names
    begun = {*filter(_BEGUN.match, last)}
    fits = [begun & own if begun else all(map(_TAG.fullmatch, own)) and any(map(_BEGUN.match, own)) for own in others]
    return [column for column, fit in enumerate(fits) if fit and column != words]


def fault_of_words(column: int, sentences: list[Sentence]) -> str | None:
    """Return what is in a column in place of words, and what to type; None for words."""
    words = [word for sentence, _ in sentences for word in sentence]
    code = _LANGUAGE.match(words[0])
    if len(words) < 2:
        return None
    if all(re.fullmatch(r"[TREAMN#]\d+|\*", word) for word in words):
        return f"has ids of brat, not words; {FORM}"
    if all(map(_ID.fullmatch, words[1:])):
        return f"has numbers, not words; set task.columns=['{column + 1}'], and task.label if not -1"
    if len(words) >= 2 * len(sentences) > 2 and all(len({*own}) == 1 for own, _ in sentences):
        return f"has one word for all of a sentence, {words[0]!r}; set task.columns=[COLUMN]"
    if code and column == 0 and all(word.startswith(code[0]) for word in words):
        return f"has {code[0]} before each word, as WikiANN; sed 's/^{code[0]}//' removes it"
    if column == 0 and all(map(_TAG.fullmatch, words)):
        return "has tags, not words; set task.columns=['1'] task.label=0"
    return None


def as_columns(place: str, lines: list[str], mark: str) -> str:
    """Return the command that makes columns, or rows, of CSV, and what to do then; empty: its tabs divide columns."""
    head, *rows = lines
    first, *others = (name.strip(' "').casefold() for name in head.split(mark))
    kind = "sentences" if first.startswith("sent") and not (NAMES | TAGGED).isdisjoint(others) else "words"
    if mark == "\t" and not (kind == "sentences" and others[1:] and all(rows[:-1])):
        return ""
    lists = _LISTS.search("".join(rows[:1]))
    if lists and lists[1] == " ":
        return "; export it again, as its lists have no commas"
    command = COMMANDS["lists" if lists else kind]
    made = f"{PurePath(place).stem}.{command['makes']}"
    option = "" if mark == "," else f", delimiter={mark!r}"
    code = command["code"].replace("sys.stdin", f"sys.stdin{option}")
    files = " >".join(map(shlex.quote, (place, made)))
    return f': python -c "{code}" <{files}, then name {made}{command["then"]}'


def _fields(line: str) -> list[str]:
    parts = line.split("\t") if "\t" in line else filter(None, line.split(" "))
    return [part.strip(" ") for part in parts]


def _comments(lines: list[str], columns: list[int]) -> tuple[Callable[[str], bool], int]:
    """Return what tells comments from lines of words, both may begin with `#`; and the columns of most lines.

    A comment has other columns than most lines, or no tag in the last one that is read: without
    tags, none of what other lines have in their last column.
    """
    sure = [line for line in lines if line[0] not in "#-"]
    kinds = collections.Counter((len(_fields(line)), "\t" in line) for line in sure or lines)
    most = kinds.most_common(1)[0][0]
    last = columns[-1] if len(columns) > 1 else -1
    known = {fields[last] for fields in map(_fields, sure) if -len(fields) <= last < len(fields)}

    def is_comment(line: str) -> bool:
        if not line.startswith("#"):
            return False
        fields = _fields(line)
        if (len(fields), "\t" in line) != most or not -len(fields) <= last < len(fields):
            return True
        prefix, dash, _ = fields[last].partition("-")
        tag = len(columns) > 1 and prefix in PREFIXES and bool(dash or prefix == OUTSIDE)
        return len(fields) > 1 and not tag and fields[last] not in known

    return is_comment, most[0]


def turn_tags(tags: set[str]) -> dict[str, str]:
    """Return the form of tags with the prefix in front, which all may have at the end."""
    ends, marks = {tag[-1:].upper() for tag in tags}, {tag[-2:-1] for tag in tags}
    if "B" in ends <= {*PREFIXES} and marks in ({"-"}, {"_"}) and not any(map(_BEGUN.match, tags)):
        return {tag: f"{tag[-1]}{tag[-2]}{tag[:-2]}" for tag in tags}
    return {tag: tag for tag in tags}


def split_tags(tags: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return prefix and type of each of a task's tags, of IOB1, IOB2, IOBES, BMES and BILOU (U- is S-, L- is E-).

    `B_PER` and `B:PER` have them where all others do, `PER-B` where all end so, one in B, a letter alone where B is one
    and all others have a prefix; else a tag is a type (`NN-TL`), whose runs are entities. Where all others have one and
    none is O, `0`, `_`, `-` or a word such as OTHER is outside.
    """
    every = {*tags}
    outside = every & {*EMPTY} or {tag for tag in every if tag.casefold() in NO_ENTITY}
    turned = turn_tags(every - outside)
    inside = {tag: own[1:2] if own[:1].upper() in PREFIXES else None for tag, own in turned.items()}
    alone = inside.get("B") == "" and {*inside.values()} <= {"", "-"}
    marks = {*inside.values()}
    own_mark = next((one for one in marks if one and is_mark(one)), "-")
    all_have = marks == {own_mark}
    mark = own_mark if all_have else "-"
    parts = {tag: (own[0].upper(), own[2:]) if inside[tag] == mark else ("I", tag) for tag, own in turned.items()}
    parts |= {tag: (tag.upper(), "") for tag, own in inside.items() if alone and not own}
    parts |= {tag: (OUTSIDE, "") if all_have or alone else ("I", tag) for tag in outside}
    return parts | dict.fromkeys(EMPTY, (OUTSIDE, ""))


def entities(tags: Tags, parts: Mapping[str, tuple[str, str]]) -> set[tuple[int, int, str]]:
    """Return (first word, word after the last, type) of each entity, as found by conlleval.

    An entity begins at B- or S-, or where the type changes; it ends at E- or S-, or before a tag
    that does not continue it. `parts` are those of `split_tags`.
    """
    spans = set()
    start, before = 0, OUTSIDE
    kind: str | None = None  # of the entity that is open
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, name = parts[tag]
        new = prefix in ("B", *ALONE) or name != kind or before in ("E", "L", *ALONE)
        if kind is not None and (new or prefix == OUTSIDE):
            spans.add((start, index, kind))
            kind = None
        if prefix != OUTSIDE and new:
            start, kind = index, name
        before = prefix
    return spans


def entity_scores(truth: list[Tags], answers: list[Tags], known: Tags) -> Scores:
    """Return precision, recall and F1 of whole entities with their types, of the `known` tags; accuracy of words."""
    parts = split_tags(known)
    right = given = wanted = words = same = 0
    for tags, found in zip(truth, answers, strict=True):
        expected, answered = entities(tags, parts), entities(found, parts)
        right += len(expected & answered)
        given += len(answered)
        wanted += len(expected)
        words += len(tags)
        same += sum(a == b for a, b in zip(tags, found, strict=True))
    return {
        "f1": 2 * right / (given + wanted) if given + wanted else 0.0,
        "precision": right / given if given else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "accuracy": same / words if words else 0.0,
    }
