"""Books, one per file: plain text, Markdown or EPUB, in folders or in zip and tar archives."""

import re

from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import archives
from pipeline.storage.placeholders import find_placeholder
from pipeline.text import book_text, epub, markdown_text

HEADER = 2**14  # characters in which a title is looked for
_TITLE = re.compile(r"^(?:# (?!Title:)|(?:# )?Title: *+)(\S.*)", re.MULTILINE)  # of Markdown, Project Gutenberg


class Reader(archives.FileReader):
    """Reader of books; removes Project Gutenberg headers and licences, and hard wraps."""

    SUFFIXES = (".txt", ".md", ".epub")

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the books that begin in the file range."""
        for name, raw in self.contents(file_range, log):
            named = None
            if name.lower().endswith(".epub"):
                try:
                    book = epub.parse(raw, self.corpus.language, self.corpus.encoding)
                except epub.Broken as error:
                    why = find_placeholder(raw.decode("utf-8", "replace")) or str(error)
                    log.reject(why, name)
                    continue
            else:
                if (decoded := archives.decode_prose(name, raw, self.corpus, log)) is None:
                    continue
                named = _TITLE.search(decoded.text, 0, HEADER)
                book = book_text.parse(decoded.text, markdown_text.unmarked if ".md" in name.lower()[-8:] else None)
            log.notes.update({f"{what} left out": n for what, n in book.passed.items()})
            log.notes.update({book_text.JOINED: book.joined} if book.joined else {})
            if book.repaired:
                log.notes["mis-encoded letters mended"] += 1
            yield Document(name, book.text, title=named[1].rstrip() if named else book.title)
