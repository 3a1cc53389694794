"""CirrusSearch's dumps of a wiki's index: a line of an action, then a line of a document.

Source: https://dumps.wikimedia.org/other/cirrus_search_index/
"""

from pipeline.readers import jsonl
from pipeline.readers.base import Documents, FileRange, ReadLog
from pipeline.readers.io import text_lines


class Reader(jsonl.Reader):
    """Reader of pages of the main namespace; a pair of lines is of the range that owns its first."""

    UNIT = "page"

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the pages whose action the range owns."""
        lines = self.files.lines(file_range, log)
        for line in lines:
            if not line.owned:
                return
            try:
                action = jsonl.parse(line.text) if line.text.strip() else {}
                if set(action) != {"index"}:  # the second line of a pair that another range owns
                    if file_range.start == 0 and action:
                        raise ValueError(
                            'no line of an action ({"index": …}) is before this; for JSON lines use +corpus=jsonl'
                        )
                    continue
                line = next(lines, line)
                page = jsonl.parse(line.text)
                if page.get("namespace", 0) != 0 or page.get("page_type") == "redirect":
                    log["namespace" if page.get("namespace") else "redirect"] += 1
                    continue
                if "namespace" in page:  # one of JSON or of data has no text
                    page.setdefault("text", None)
                place = f"{self.corpus.name}:{action['index'].get('_id', line.number)}"
                yield from self.documents_of(page, place, log)
            except (ValueError, AttributeError) as error:
                text_lines.bad_line(log, file_range, line.number, str(error))
