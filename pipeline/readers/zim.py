"""ZIM archives of Kiwix, by libzim: the pages of HTML."""

from pathlib import Path
from typing import Any

from pipeline.common.schema import check, library
from pipeline.config import CorpusConfig
from pipeline.readers.base import Document, Documents, FileRange, FileRanges, ReadLog
from pipeline.readers.files import files_of
from pipeline.readers.io import byte_ranges
from pipeline.storage import budget, placeholders, places
from pipeline.text import html_text

ENTRIES = 1000  # of an item of a range
_OLD = "A/"  # articles, where paths begin with a namespace


class Reader:
    """Reader of pages; a range is one of entries. Redirects are left out: they give the page that they lead to."""

    UNIT = "entry"
    members = (".zim",)

    def __init__(self, corpus: CorpusConfig, source: str):
        check(isinstance(places.at(corpus.path or ""), Path), "must be on a disk", "corpus.path", corpus.path)
        self.corpus, self.source = corpus, source
        self.library = library("libzim.reader", "corpus.reader", corpus.reader, package="libzim")

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut between entries, which take equal parts of the file."""
        files = files_of(self.corpus, self.source, (".zim",))
        return files.cut(
            each for file in files for each in byte_ranges.cut(str(file), self._items(str(file)), split_bytes)
        )

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the pages of the entries that begin in the file range.

        Raises:
            InputError: the file was changed or is damaged.
        """
        path = file_range.path
        archive = self._open(path)
        for first in byte_ranges.items_in_range(self._items(path), file_range, log):
            for number in range(first, min(first + ENTRIES, archive.entry_count)):
                name = f"{path} entry {number}"
                try:
                    if (page := self._page(archive, number, log)) is None:
                        continue
                    name, content = f"{self.corpus.name}:{page.path}", bytes(page.content)
                    text = html_text.decoded_text(content, self.corpus.language, "utf-8")
                except (RuntimeError, ValueError, KeyError) as error:
                    log.reject(f"cannot be read ({error})", name)
                    continue
                yield Document(name, text)

    def _page(self, archive: Any, number: int, log: ReadLog) -> Any:
        entry = archive._get_entry_by_id(number)
        if entry.is_redirect:
            log["redirect"] += 1
            return None
        item = entry.get_item()
        if not item.mimetype.startswith("text/html") or not (
            archive.has_new_namespace_scheme or entry.path.startswith(_OLD)
        ):
            log["other media"] += 1
            return None
        if item.size > budget.DOCUMENT:
            raise ValueError(f"larger than {budget.DOCUMENT:,} bytes")
        return item

    def _open(self, path: str) -> Any:
        try:
            return self.library.Archive(path)
        except RuntimeError as error:
            why = f"not a complete ZIM file ({error}); download it again"
            raise placeholders.error_of(places.at(path), why) from error

    def _items(self, path: str) -> list[byte_ranges.Marked[int]]:
        return byte_ranges.even(path, range(0, self._open(path).entry_count, ENTRIES))
