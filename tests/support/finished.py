"""Records of finished stages, of which a test names what it needs."""

from pipeline.records.checkpoint_folder import State
from pipeline.records.manifest import Manifest


def manifest(stage, **fields):
    """Return the manifest of a stage that has ended."""
    empty = {name: {} for name in ("config", "inputs", "files", "figures")}
    when = {"seconds": 1.0, "finished": "2026-01-01T00:00:00+00:00"}
    return Manifest(
        **{"stage": stage, "fingerprint": stage[0] * 64, "version": 1, "summary": "", **empty, **when, **fields}
    )


def state(step, **fields):
    """Return what a checkpoint says of itself."""
    words = {"fingerprint": "t" * 64, "model": {}, "data": "d", "tokenizer": "t"}
    return State(**{"step": step, "samples": 8 * step, "tokens": 100 * step, **words, **fields})
