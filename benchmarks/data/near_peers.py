"""datatrove's MinHash by its own executor, over the corpus of `benchmarks.data.large`; a process of its own.

`python near_peers.py FOLDER WORK BANDS ROWS WORDS` writes the ids that it leaves out to WORK/gone.txt. It
runs in an environment of its own (`pip install 'datatrove[processing]' spacy`), so nothing of ours is imported.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.hashing import HashConfig
from loguru import logger


def main(folder: str, work: str, bands: int, rows: int, words: int) -> None:
    config = MinhashConfig(
        n_grams=words, num_buckets=bands, hashes_per_bucket=rows, hash_config=HashConfig(precision=64)
    )
    logger.remove()
    files = len(list(Path(folder).glob("0*.jsonl.gz")))

    def run(tasks: int, *steps: Any) -> None:
        logs = f"{work}/logs-{type(steps[-1]).__name__}"
        LocalPipelineExecutor(list(steps), tasks=tasks, workers=1, logging_dir=logs).run()

    def reader() -> JsonlReader:
        return JsonlReader(folder, glob_pattern="0*.jsonl.gz")

    run(files, reader(), MinhashDedupSignature(f"{work}/signatures", config, language="en"))
    run(bands, MinhashDedupBuckets(f"{work}/signatures", f"{work}/buckets", config=config))
    run(1, MinhashDedupCluster(f"{work}/buckets", f"{work}/remove", config=config))
    kept, gone = JsonlWriter(f"{work}/kept"), JsonlWriter(f"{work}/gone")
    run(files, reader(), MinhashDedupFilter(f"{work}/remove", exclusion_writer=gone), kept)
    lines = [gzip.decompress(path.read_bytes()).splitlines() for path in Path(work, "gone").rglob("*.gz")]
    Path(work, "gone.txt").write_text("".join(json.loads(line)["id"] + "\n" for each in lines for line in each))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
