"""Posts, or comments, of Stack Exchange: `Posts.xml` of its dumps, a row of attributes per line.

Source: https://archive.org/details/stackexchange
"""

import re
from functools import cached_property
from xml.etree.ElementTree import ParseError, fromstring

from pipeline.config import CorpusConfig
from pipeline.readers import formats
from pipeline.readers.base import Documents, FileRange, ReadLog
from pipeline.readers.io import compressed, row_fields, text_lines
from pipeline.storage.places import File
from pipeline.text import encodings

_AROUND = re.compile(r"<[?!].*|</?[a-z]++>|")  # the element around all rows, and what is before it
_NAMES = (  # a row has those that say something of it
    "Title Body Text Id PostTypeId PostId ParentId AcceptedAnswerId CreationDate Score ViewCount OwnerUserId UserId "
    "LastEditDate LastActivityDate Tags AnswerCount CommentCount FavoriteCount ClosedDate ContentLicense"
)
_NONE = dict.fromkeys(_NAMES.split())


class _Files(text_lines.TextFiles):
    def of_reader(self, found: list[File]) -> list[File]:
        return [file for file in found if "posts" in file.name.lower()] or found

    def form(self, path: str) -> text_lines.FileFormat:
        form = super().form(path)
        return form._replace(fault=None) if form.fault == encodings.FORMAT else form  # XML is meant


class Reader(row_fields.LineRows):
    """Reader of questions and answers; fields are attributes, such as Body, Title, Score and PostTypeId."""

    UNIT = "post"
    members = compressed.suffixes(".xml")

    def __init__(
        self, corpus: CorpusConfig, source: str, *, text: str | list[str] | None = None, where: str | None = None
    ):
        super().__init__(
            corpus, source, text=["Title", "Body", "Text"] if text is None else text, where=where, html=True
        )

    @cached_property
    def files(self) -> text_lines.TextFiles:
        """Return the files of rows."""
        return _Files(self.corpus, self.source, self.members)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the posts in the lines that the range owns."""
        for line in self.files.lines(file_range, log):
            if not line.owned:
                return
            row = line.text.strip()
            if _AROUND.fullmatch(row):
                continue
            try:
                if not row.startswith("<row "):
                    raise ValueError("neither <row … /> nor the element around all rows")
                fields = _NONE | fromstring(row).attrib
                yield from self.documents_of(fields, f"{self.corpus.name}:{fields.get('Id')}", log)
            except (ParseError, ValueError) as error:
                file = compressed.CompressedFile(file_range.path)
                other = formats.name_file(file, "stackexchange") if line.number < 5 else None
                text_lines.bad_line(log, file_range, line.number, other or str(error), offer_skip=not other)
