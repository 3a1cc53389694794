"""One sentence per line, a blank line between documents: the input of Google's BERT code."""

from pipeline.config import CorpusConfig
from pipeline.readers import Document, Documents, FileRange, SkipCounts
from pipeline.readers.io import compressed, text_lines

NAMES = compressed.suffixes(".txt", ".sentences")


class Reader(text_lines.TextFiles):
    """Reader of files of sentences; lines are neither split nor joined."""

    def __init__(self, corpus: CorpusConfig, source: str):
        super().__init__(corpus, source, NAMES)

    def read(self, split: FileRange, tally: SkipCounts) -> Documents:
        """Yield the documents that follow a blank line of the split."""
        lines = self.lines(split, tally)
        cure = "put one between documents, or use corpus=text corpus.options.document=line"
        for block in text_lines.blocks(lines, split, "corpus.reader", cure):
            text = "\n".join(line.text for line in block)
            yield Document(text_lines.document_id(split, block[0].number), text, sentence_lines=True)
