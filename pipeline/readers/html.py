"""Pages of HTML, one per file, in folders or archives."""

from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.io import archives
from pipeline.text import html_text


class Reader(archives.FileReader):
    """Reader of the main text of pages, without menus, footers and comments."""

    UNIT = "page"
    SUFFIXES = (".html", ".htm", ".xhtml")

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the pages that begin in the file range."""
        for name, raw in self.contents(file_range, log):
            try:
                yield Document(name, html_text.decoded_text(raw, self.corpus.language, self.corpus.encoding))
            except ValueError as error:
                log.reject(str(error), name)
