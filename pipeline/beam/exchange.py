"""Layout of the exchange between splits and buckets; its cost grows only with the corpus.

A task has a fixed cost, however little text it gets. Neighbouring small splits are therefore read
by one task, and neighbouring small buckets written by one, so that a task has `runner.task_bytes`
of text or more. With few tasks, each reading task leaves one part of documents per writing task.
With many, such parts would have a few bytes, and their number would be reading times writing
tasks. Then a reading task leaves one part per *range* of writing tasks, and a step between the
phases merges one range of one *group* of reading tasks into one part per writing task. Merged
parts have `MERGED_BYTES` on average: their number is proportional to the size of the corpus. Ranges
and groups are balanced so that both steps read equally often.

A task that reads more than a *portion* of tokens, as from a compressed file, which cannot be cut,
leaves one part per range for each portion. Merging tasks write in portions too: no task holds more
than a portion, or the shards that it writes.
"""

import dataclasses
import math

from pipeline.config import PrepareConfig

DIRECT = 2**14  # largest product of reading and writing tasks without a merge step
MERGED_BYTES = 64 * 2**20  # text per merged part; its task needs a few times that in memory

BUFFERED = 2**24  # tokens of a portion, at least
PER_TOKEN = 4  # bytes of text, rounded down

SUBTASK_BYTES = 128 * 2**20  # text whose tokens an engine may hold in its heap: 60 MB
MOST_SUBTASKS = 2048

NEAR_BYTES = 16 * 2**20  # text whose documents a task that finds near duplicates has, at least
NEAR_PARTS = 4  # merged parts that it has, at least


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exchange:
    """Mapping from documents to parts."""

    buckets: int
    reads: int  # reading tasks
    writes: int  # writing tasks
    ranges: int  # of writing tasks; equals `writes` without a merge step
    groups: int  # of reading tasks; equals `reads` without a merge step
    portions: int  # of all reading tasks, about; equals `reads` if each has only one
    text: float = 0.0  # bytes

    @classmethod
    def choose(cls, reads: int, buckets: int, text: float, task_bytes: int, portions: int = 0) -> "Exchange":
        """Return the layout for a corpus of `text` bytes: a function of the arguments only."""
        portions = max(reads, portions)
        writes = min(buckets, max(1, int(text // task_bytes)))
        ranges, groups = writes, reads
        if portions * writes > DIRECT:
            parts = max(1.0, text / MERGED_BYTES)
            ranges = min(writes, max(1, round(math.sqrt(parts * writes / portions))))
            groups = min(reads, max(1, math.ceil(parts / ranges)))
        return cls(
            buckets=buckets, reads=reads, writes=writes, ranges=ranges, groups=groups, portions=portions, text=text
        )

    @property
    def merges(self) -> bool:
        """Return whether a merge step runs between the phases."""
        return self.portions * self.writes > DIRECT

    @property
    def subtasks(self) -> int:
        """Return how many a phase is for an engine that holds the output of a subtask."""
        return min(max(self.reads, self.writes), MOST_SUBTASKS, math.ceil(self.text / SUBTASK_BYTES))

    @property
    def near_tasks(self) -> int:
        """Return the number of tasks of each step that finds near duplicates.

        Every reading task may send a part to each of them.
        """
        tasks = min(self.writes, max(1, int(self.text // NEAR_BYTES)))
        if not self.merges:
            return tasks
        return min(tasks, max(1, DIRECT // self.reads, self.groups * self.ranges // NEAR_PARTS))

    def group(self, read: int) -> int:
        """Return the group of a reading task."""
        return read * self.groups // self.reads

    def first_place(self, read: int) -> int:
        """Return the number of the task that gets a reading task's documents of the first range."""
        return self.group(read) * self.ranges if self.merges else 0

    def first_write(self, index: int) -> int:
        """Return the first writing task of a range; `index=ranges` gives the number of tasks."""
        return -(-index * self.writes // self.ranges)

    def first_bucket(self, write: int) -> int:
        """Return the first bucket of a writing task; `write=writes` gives the number of buckets."""
        return -(-write * self.buckets // self.writes)

    def write_of(self, bucket: int) -> int:
        """Return the writing task of a bucket."""
        return bucket * self.writes // self.buckets

    @property
    def range_bounds(self) -> list[int]:
        """Return the first bucket of each range, and the number of buckets."""
        return [self.first_bucket(self.first_write(k)) for k in range(self.ranges + 1)]

    def write_bounds(self, index: int) -> list[int]:
        """Return the first bucket of each writing task of a range, and the end of the last one."""
        low, high = self.first_write(index), self.first_write(index + 1)
        return [self.first_bucket(write) for write in range(low, high + 1)]


def portion(config: PrepareConfig) -> int:
    """Return the tokens of a portion: those of a shard, which a task holds later, or more."""
    return max(BUFFERED, config.shard_bytes // PER_TOKEN)
