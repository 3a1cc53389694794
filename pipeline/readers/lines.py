"""One sentence a line, a blank line between documents: what Google's own BERT code reads."""

from collections.abc import Iterator

from pipeline.config import CorpusConfig
from pipeline.readers import Document, FileRange, SkipCounts
from pipeline.readers.io import text_lines

NAMES = text_lines.suffixes(".txt", ".sentences")


class Reader:
    """Reads files of sentences. What is a sentence stays one: nothing is split or joined."""

    def __init__(self, corpus: CorpusConfig, source: str):
        self.files = text_lines.TextFiles(corpus, source, NAMES)

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut the files anywhere."""
        return self.files.splits(split_bytes)

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """The documents that follow a blank line of the part."""
        lines = self.files.lines(split, tally)
        for block in text_lines.blocks(lines, split.start == 0):
            text = "\n".join(line.text for line in block)
            yield Document(document_id(split, block[0].number), "", text, sentence_lines=True)


def document_id(split: FileRange, number: int) -> str:
    """The name of the document that begins in a line of the part."""
    part = f" counted from byte {split.start}" if split.start else ""
    return f"{split.path} line {number}{part}"
