"""A progress bar over the files that a job leaves: the same for every engine."""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator

from tqdm import tqdm

from pipeline.beam.plan import PreparePlan


@contextlib.contextmanager
def watch(plan: PreparePlan, every: float = 1.0) -> Iterator[None]:
    """Show how much of the plan is done while the body runs; nothing where no terminal is."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    total = sum(split.end - split.start for split in plan.splits)
    with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, desc="prepare") as bar:

        def follow() -> None:
            seen: set[int] = set()
            documents = 0
            while not done.wait(every):
                for index, split in enumerate(plan.splits):
                    account = plan.split_account(index)
                    if index not in seen and account.exists():
                        seen.add(index)
                        documents += json.loads(account.read_text())["documents"].get("read", 0)
                        bar.update(split.end - split.start)
                bar.set_postfix_str(f"{documents:,} documents")

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
