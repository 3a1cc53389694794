"""Books, one per file: plain text, Markdown or EPUB, in folders or in zip and tar archives."""

from pipeline.config import CorpusConfig
from pipeline.readers import Document, Documents, FileRange, SkipCounts
from pipeline.readers.io import archives
from pipeline.storage.placeholders import stand_in
from pipeline.text import book_text, epub

SUFFIXES = (".txt", ".md", ".epub")


class Reader(archives.ArchiveFiles):
    """Reader of books; removes Project Gutenberg headers and licences, and hard wraps."""

    def __init__(self, corpus: CorpusConfig, source: str):
        super().__init__(corpus, source, SUFFIXES)

    def read(self, split: FileRange, tally: SkipCounts) -> Documents:
        """Yield the books that begin in the split."""
        for name, raw in self.contents(split, tally):
            if name.lower().endswith(".epub"):
                try:
                    book = epub.parse(raw, self.corpus.language, self.corpus.encoding)
                except epub.Broken as error:
                    why = stand_in(raw.decode("utf-8", "replace")) or str(error)
                    tally.reject(why, name)
                    continue
            else:
                if (decoded := archives.decode(name, raw, self.corpus, tally)) is None:
                    continue
                book = book_text.parse(decoded.text)
            tally.notes.update({f"{what} left out": n for what, n in book.passed.items()})
            if book.repaired:
                tally.notes["mis-encoded letters mended"] += 1
            yield Document(name, book.text)
