"""Treebanks in CoNLL-U, or CoNLL-U Plus: sentences, in documents where these are marked.

Source: https://universaldependencies.org/format.html and ext-format.html
"""

import functools
from collections.abc import Iterable, Iterator

from pipeline.config import CorpusConfig
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import compressed, text_lines
from pipeline.readers.io.text_lines import Line
from pipeline.storage.budget import KEPT, Budget

_TEN = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]


class Reader(text_lines.TextFiles):
    """Reader of texts, one sentence per line; a file without `# newdoc` is one document."""

    def __init__(self, corpus: CorpusConfig, source: str):
        super().__init__(corpus, source, compressed.suffixes(".conllu", ".conllup", ".cupt", ".conll"))

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents whose first line the range owns."""
        ours, name, block, found, size = file_range.start == 0, "", list[Line](), list[str](), 0
        room = Budget(AssertionError)  # of no document yet
        for line in self.lines(file_range, log):
            _, owned, text = line
            word = name and text[:1].isdigit()
            if not word:
                begins = text.startswith("# newdoc")
                if begins and (found or block):
                    yield from self._document(name, found, block, file_range, log)
                    found, block = [], []
                if not owned and (begins or not ours):
                    return
                if begins or (ours and not name):
                    ours, name, size = True, text.partition("=")[2].strip() if begins else "", 0
                    name = name or text_lines.document_id(file_range, line.number)
                    room = text_lines.document_budget(file_range, line, "no end; put '# newdoc' lines into the file")
            if ours:
                block.append(line)
                size += KEPT + len(text)
                if size > room.left:
                    room.take(size)
                if not word and not text.strip():
                    sentence = self._sentence(block, file_range, log)
                    found += sentence
                    block, size = [], 0
                    room.take(sum(KEPT + len(each) for each in sentence))
        if ours:
            yield from self._document(name, found, block, file_range, log)

    def _document(
        self, name: str, found: list[str], block: list[Line], file_range: FileRange, log: ReadLog
    ) -> Iterator[Document]:
        if text := "\n".join([*found, *self._sentence(block, file_range, log)]):
            yield Document(name, text, sentence_lines=True)

    def _sentence(self, block: list[Line], file_range: FileRange, log: ReadLog) -> list[str]:
        """Return the sentence of a block, as it is stated or as its words make it; none if it is broken."""
        stated = ""
        try:
            columns = columns_of(self.form(file_range.path).first)
            for line in block:
                text = line.text
                if text[:1] == "#":
                    if text.startswith("# text ="):
                        stated = text.partition("=")[2].strip()
                elif text.count("\t") != columns[2] and text.strip():
                    why = "has not the fields of CoNLL-U, ten or as its first line says"
                    text_lines.bad_line(log, file_range, line.number, f"{why}; make text of others for +corpus=text")
                    return []
            text = stated or "".join(spaced((line for line in block if line.text[:1].isdigit()), columns)).strip()
        except ValueError as error:
            text_lines.bad_line(
                log, file_range, block[0].number, f"has no column ID or FORM, or an id is wrong ({error})"
            )
            return []
        return [text] if text else []


@functools.lru_cache(maxsize=64)
def columns_of(first: str) -> tuple[int, int, int]:
    """Return where forms and remarks are among the columns, by a file's first line, and which is the last.

    Raises:
        ValueError: forms are nowhere, or ids are not in the first column.
    """
    key, _, named = first.partition("=")
    names = named.split() if key.strip() == "# global.columns" else _TEN
    if names[:1] != ["ID"]:
        raise ValueError(named)
    return names.index("FORM"), names.index("MISC") if "MISC" in names else 0, len(names) - 1


def spaced(words: Iterable[Line], columns: tuple[int, int, int]) -> Iterator[str]:
    """Yield the forms of a sentence, with spaces where they have any; of a range of words its own form."""
    last, (at, remarks, _) = 0, columns
    for line in words:
        fields = line.text.split("\t")
        number, form, misc = fields[0], fields[at], fields[remarks]
        first, _, end = number.partition("-")
        if "." in number or int(first) <= last:  # a word that is not written; a part of a range
            continue
        last = int(end or first)
        yield form if "SpaceAfter=No" in misc.split("|") else f"{form} "
