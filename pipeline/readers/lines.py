"""One sentence per line, a blank line between documents: the input of Google's BERT code."""

from pipeline.config import CorpusConfig
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import compressed, text_lines

NAMES = compressed.suffixes(".txt", ".sentences")


class Reader(text_lines.TextFiles):
    """Reader of files of sentences; lines are neither split nor joined; `numbered` ones lose their number and a tab."""

    def __init__(self, corpus: CorpusConfig, source: str, *, numbered: bool | None = None):
        super().__init__(corpus, source, NAMES, prose=True, numbered=numbered)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents that follow a blank line of the file range."""
        lines = self.lines(file_range, log)
        cure = "put one between documents, or use corpus=text corpus.options.document=line"
        for block in text_lines.blocks(lines, file_range, "corpus.reader", cure):
            text = "\n".join(line.text for line in block)
            yield Document(text_lines.document_id(file_range, block[0].number), text, sentence_lines=True)
