#!/usr/bin/env bash
# fastwarc 2.0.1, warcio 1.8.1.
# Guess: of a page whose header says gzip, though the crawler stored it decoded, the text is what was stored, as in
# warcio; at worst that page is lost, and the next is read.
# Seen: with auto_decode="content" or "all" reading it raises OSError, and so does the step to the next record: all
# that follows in the file is out of reach. With auto_decode="none", decoded page by page, nothing is lost.
# What follows: who reads a crawl with auto_decode loses the rest of a file without a word if errors are skipped.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check fastwarc==2.0.1 warcio==1.8.1
cd "$place"
venv/bin/python - <<'PYTHON'
import io

from fastwarc.warc import ArchiveIterator
from warcio.archiveiterator import ArchiveIterator as Warcio
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

held = io.BytesIO()
writer = WARCWriter(held, gzip=True)
for number, coding in enumerate([[], [("Content-Encoding", "gzip")], []]):
    page = f"<p>page {number}</p>".encode()
    headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html"), *coding], protocol="HTTP/1.1")
    address = f"https://example.org/{number}"
    record = writer.create_warc_record(address, "response", io.BytesIO(page), len(page), http_headers=headers)
    writer.write_record(record)


def pages(coded):
    found = []
    try:
        for record in ArchiveIterator(io.BytesIO(held.getvalue()), auto_decode=coded):
            try:
                found.append(record.reader.read().decode())
            except OSError as error:
                found.append(f"OSError: {error}")
    except OSError as error:
        found.append(f"the end of the file: {error}")
    return found


held.seek(0)
theirs = [record.content_stream().read().decode() for record in Warcio(held)]
seen = {coded: pages(coded) for coded in ("none", "content", "all")}
print("warcio", theirs)
for coded, found in seen.items():
    print("fastwarc", coded, found)
whole = [f"<p>page {number}</p>" for number in range(3)]
assert theirs == seen["none"] == whole
assert all(whole[2] not in seen[coded] for coded in ("content", "all"))
PYTHON
