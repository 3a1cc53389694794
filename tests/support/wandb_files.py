"""What W&B has written to its files, read back in W&B's own format."""

import json
import struct

from wandb.proto import wandb_internal_pb2

FULL, LAST, BLOCK = 1, 4, 1 << 15


def records(path):
    """The records of a .wandb file: LevelDB's log format after seven bytes of its own."""
    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:  # no room for a header: the block is padded
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def history(folder):
    """The logged rows of all runs below a folder, oldest first."""
    paths = sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_ctime)
    found = [record for path in paths for record in records(path)]
    return [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in r.history.item}
        for r in found
        if r.WhichOneof("record_type") == "history"
    ]


def of(folder, kind):
    """Return all records of a kind."""
    paths = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    return [getattr(r, kind) for p in paths for r in records(p) if r.WhichOneof("record_type") == kind]
