#!/usr/bin/env bash
# isal 1.9.1 (python-isal), beside Python's zlib.
# Guess: igzip_lib.IgzipDecompressor takes a file of gzip in pieces of any size, as zlib.decompressobj(wbits=31) does.
# Seen: where a header has its own checksum (FHCRC, RFC 1952) and comes in two pieces, a whole file is refused: "Incorrect
# checksum found" or "Invalid deflate block found". In one piece it is read. isal_zlib.decompressobj does the same;
# igzip.open, which gathers a header itself, reads all.
# What follows: who feeds it what a network or a buffer of fixed size gives must not cut within a header.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check isal==1.9.1
cd "$place"
venv/bin/python - <<'PYTHON'
import gzip
import io
import zlib

from isal import igzip, igzip_lib, isal_zlib

body = b"A few words of a text.\n" * 20
start = b"\x1f\x8b\x08\x02" + bytes(6)  # FHCRC alone
header = start + (zlib.crc32(start) & 0xFFFF).to_bytes(2, "little")
whole = header + gzip.compress(body)[10:]
assert gzip.decompress(whole) == igzip.open(io.BytesIO(whole)).read() == body


def read(new, cut):
    stream = new()
    try:
        return stream.decompress(whole[:cut]) + stream.decompress(whole[cut:]) == body
    except Exception as error:
        return f"{type(error).__name__}: {error}"


makers = {
    "zlib": lambda: zlib.decompressobj(wbits=31),
    "igzip_lib": lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
    "isal_zlib": lambda: isal_zlib.decompressobj(wbits=31),
}
seen = {name: [read(new, cut) for cut in range(1, len(header) + 1)] for name, new in makers.items()}
for name, results in seen.items():
    print(name, results)
assert seen["zlib"] == [True] * len(header)
for name in ("igzip_lib", "isal_zlib"):
    assert seen[name][-1] is True
    assert not any(result is True for result in seen[name][:-1])
PYTHON
