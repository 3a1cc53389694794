"""Wikipedia dumps (pages-articles XML, plain, .gz or .bz2) -> articles as plain text."""

import re

from pipeline.common.errors import InputError
from pipeline.common.storage import File
from pipeline.config import CorpusConfig
from pipeline.readers import Document, Documents, FileRange, SkipCounts, files_of
from pipeline.readers.io import mediawiki_xml
from pipeline.readers.io.compressed import CompressedFile
from pipeline.text.wikitext import Extractor

# A folder of dumps also has indices, lists of titles and database tables.
_OTHER = re.compile(r"index\d*\.txt|\.sql\.gz$|all-titles|md5sums|sha1sums")


class Reader:
    """Reader of the articles of one language's Wikipedia, or of any other MediaWiki.

    Skip reasons in the tally: `namespace` (talk, categories, templates ...), `redirect`, `model`
    (CSS, JSON, Lua), `empty` (no text at all, or none left after removing the markup).
    """

    UNIT = "page"

    def __init__(self, corpus: CorpusConfig, source: str) -> None:
        self.name = corpus.name
        self.language = corpus.language
        self.files = files_of(corpus, source, (".xml", ".bz2", ".gz"), dumps)
        self._extractors: dict[str, tuple[mediawiki_xml.Site, Extractor]] = {}

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut every dump into byte ranges; a dump that is not seekable is one split."""
        parts = []
        for path in self.files:
            file = CompressedFile(path)
            parts += file.ranges(split_bytes, seekable_text=mediawiki_xml.site(file).utf8)
        return parts

    def read(self, split: FileRange, tally: SkipCounts) -> Documents:
        """Yield the articles whose pages start in the split."""
        file = CompressedFile(split.path)
        site, extractor = self._site(file)
        for page in mediawiki_xml.pages(file, split, tally):
            reason = skip_reason(page, site, extractor)
            text = "" if reason else extractor.text(page.text)
            if text:
                yield Document(f"{self.name}:{page.id}", text)
            else:
                tally[reason or "empty"] += 1

    def _site(self, file: CompressedFile) -> tuple[mediawiki_xml.Site, Extractor]:
        path = str(file.file)
        if path not in self._extractors:
            site = mediawiki_xml.site(file)
            names = site.namespaces
            extractor = Extractor(self.language, files=names.get(6), categories=names.get(14))
            self._extractors[path] = site, extractor
        return self._extractors[path]


def dumps(found: list[File]) -> list[File]:
    """Return the files that are dumps of pages.

    Raises:
        InputError: none is.
    """
    kept = [path for path in found if not _OTHER.search(path.name)]
    if not kept:
        raise InputError(f"no dump of pages found, only {found[0].name}; download pages-articles", path=found[0].parent)
    return kept


def skip_reason(page: mediawiki_xml.Page, site: mediawiki_xml.Site, extractor: Extractor) -> str | None:
    """Return why a page is not an article, or None if it is one."""
    namespace = page.namespace
    if namespace is None:
        prefix, colon, _ = page.title.partition(":")
        named = {name: number for number, name in site.namespaces.items() if name}
        namespace = named.get(prefix, 0) if colon else 0
    if namespace != 0:
        return "namespace"
    if page.redirect or extractor.is_redirect(page.text):
        return "redirect"
    if page.model != "wikitext":
        return "model"
    return None
