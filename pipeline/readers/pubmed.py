"""PubMed's baseline and update files: titles and abstracts.

Source: https://dtd.nlm.nih.gov/ncbi/pubmed/doc/out/250101/
"""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from pipeline.errors import InputError
from pipeline.readers import formats
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.files import WholeFiles
from pipeline.readers.io import compressed, xml_prose
from pipeline.readers.io.xml_prose import MALFORMED, events, local
from pipeline.storage import budget, placeholders

_RECORDS = ("PubmedArticle", "PubmedBookArticle")
_DELETED = "records that DeleteCitation withdraws; list their ids in filters.remove"


class Reader(WholeFiles):
    """Reader of records; a file is one range, as XML is read from its first byte."""

    UNIT = "record"
    members = compressed.suffixes(".xml")

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the records of the file; their ids are PubMed's, with the number of a later version.

        Raises:
            InputError: the file is damaged or not of PubMed.
        """
        last, file = "", compressed.CompressedFile(file_range.path)
        try:
            for record in self._records(file_range, log):
                citation = record[0]  # MedlineCitation, or BookDocument
                number = citation.find("PMID")
                last = "" if number is None else number.text or ""
                version = "1" if number is None else number.get("Version", "1")
                title, text = title_and_text(citation)
                yield Document(f"pubmed:{last}" + (f".{version}" if version != "1" else ""), text, title=title)
        except (*MALFORMED, IndexError) as error:
            other = None if last else formats.name_file(file, "pubmed")
            why = other or f"not well-formed XML after record {last or 'none'}: {error}; download the file again"
            raise placeholders.error_of(file.file, why) from error

    def _records(self, file_range: FileRange, log: ReadLog) -> Iterator[Element]:
        root: Element | None = None
        path = file_range.path
        larger = f"a record larger than {budget.DOCUMENT:,} bytes; remove it"
        room = budget.Budget(lambda: InputError(larger, path=path))
        file = compressed.CompressedFile(path)
        for event, element in events((data for data, _ in file.read(file_range, log)), room):
            if root is None:
                root = element
                if local(root) != "PubmedArticleSet":
                    why = f"the root element is <{local(root)}>, not <PubmedArticleSet>"
                    raise InputError(formats.name_file(file) or why, path=path)
            elif event == "end" and element.tag in _RECORDS:
                yield element
                root.clear()
                room.left = budget.DOCUMENT
            elif event == "end" and element.tag == "DeleteCitation":
                log.notes[_DELETED] += len(element)


def title_and_text(citation: Element) -> tuple[str, str]:
    """Return an article's title, and that with the parts of the abstract, one per line."""
    prose = xml_prose.Prose("AbstractText", "annotation")
    top = citation.find("Article")
    top = citation if top is None else top
    title, book, abstract = (
        [text for part in top.iterfind(name) for text in prose.paragraphs(part)]
        for name in ("ArticleTitle", "BookTitle", "Abstract/AbstractText")
    )
    return "\n".join(title[:1]), "\n".join([*title, *book, *abstract])
