"""Treebanks in CoNLL-U: sentences, in documents where these are marked.

Source: https://universaldependencies.org/format.html
"""

from collections.abc import Iterable, Iterator

from pipeline.config import CorpusConfig
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import compressed, text_lines
from pipeline.readers.io.text_lines import Line
from pipeline.storage.budget import KEPT, Budget


class Reader(text_lines.TextFiles):
    """Reader of texts, one sentence per line; a file without `# newdoc` is one document."""

    def __init__(self, corpus: CorpusConfig, source: str):
        super().__init__(corpus, source, compressed.suffixes(".conllu", ".conll"))

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents whose first line the range owns."""
        ours, name, block, found, size = file_range.start == 0, "", list[Line](), list[str](), 0
        room = Budget(AssertionError)  # of no document yet
        for line in self.lines(file_range, log):
            _, owned, text = line
            if name and text[:1].isdigit():  # a word
                if ours:
                    block.append(line)
                    size += KEPT + len(text)
                    if size > room.left:
                        room.take(size)
                continue
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
                if not text.strip():
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
        for line in block:
            text = line.text
            if text[:1] == "#":
                if text.startswith("# text ="):
                    stated = text.partition("=")[2].strip()
            elif text.count("\t") != 9 and text.strip():
                why = "has not the ten fields of CoNLL-U; of other tables, join the words to text, for +corpus=text"
                text_lines.bad_line(log, file_range, line.number, why)
                return []
        text = stated or "".join(spaced(line for line in block if line.text[:1].isdigit())).strip()
        return [text] if text else []


def spaced(words: Iterable[Line]) -> Iterator[str]:
    """Yield the forms of a sentence, with spaces where they have any; of a range of words its own form."""
    last = 0
    for line in words:
        number, form, *_, misc = line.text.split("\t")
        first, _, end = number.partition("-")
        if "." in number or int(first) <= last:  # a word that is not written; a part of a range
            continue
        last = int(end or first)
        yield form if "SpaceAfter=No" in misc.split("|") else f"{form} "
