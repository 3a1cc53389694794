"""Plain text: one document per file, paragraph or line."""

from collections.abc import Iterator

from pipeline.config import CorpusConfig, check_choice
from pipeline.readers import Document, FileRange, SkipCounts
from pipeline.readers.io import archives, text_lines
from pipeline.readers.lines import document_id
from pipeline.text import book_text

SUFFIXES = (".txt", ".text")


class Reader:
    """Reader of text files; unlike `books`, it keeps headers and licences.

    A `document` is a `file`, a `paragraph` (delimited by blank lines) or a `line`. `hard_wraps`
    joins the lines of a paragraph.
    """

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        *,
        document: str = "file",
        hard_wraps: bool = False,
    ):
        check_choice("corpus.options.document", document, ("file", "paragraph", "line"))
        self.corpus, self.document, self.hard_wraps = corpus, document, hard_wraps
        self.whole = archives.ArchiveFiles(corpus, source, SUFFIXES)
        self.files = text_lines.TextFiles(corpus, source, text_lines.suffixes(*SUFFIXES))

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut between files, or at any byte if a document is smaller than a file."""
        reader = self.whole if self.document == "file" else self.files
        return reader.splits(split_bytes)

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """Yield the documents that begin in the split."""
        if self.document == "file":
            yield from self._files(split, tally)
            return
        lines = self.files.lines(split, tally)
        if self.document == "line":
            for line in lines:
                if not line.owned:
                    return
                if line.text.strip():
                    yield Document(document_id(split, line.number), "", line.text)
            return
        key = "corpus.options.document"
        for block in text_lines.blocks(lines, split, key, f"set {key}=line"):
            text = (" " if self.hard_wraps else "\n").join(line.text for line in block)
            yield Document(document_id(split, block[0].number), "", text)

    def _files(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        for name, raw in self.whole.read(split, tally):
            if decoded := archives.decode(name, raw, self.corpus, tally):
                text = book_text.unwrapped(decoded.text) if self.hard_wraps else decoded.text
                yield Document(name, archives.stem(name), text)
