"""Layout of the files between splits and buckets; the number of reads grows only with the corpus.

With few splits and buckets, the file of a split has one record batch per bucket. With many, such
batches would have a few bytes, and the number of reads would be splits times buckets. Then the file
of a split has one batch per *range* of buckets, and a step between the phases merges one range of
one *group* of splits into a file with one batch per bucket. Merged files have `MERGED_BYTES` on
average: their number is proportional to the size of the corpus. Ranges and groups are balanced so
that both steps read equally often.
"""

import dataclasses
import math

DIRECT = 2**14  # largest product of splits and buckets without a merge step
MERGED_BYTES = 64 * 2**20  # text per merged file; its task needs a few times that in memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exchange:
    """Mapping from documents to files and batches."""

    splits: int
    buckets: int
    ranges: int  # of buckets; equals `buckets` without a merge step
    groups: int  # of splits; equals `splits` without a merge step

    @classmethod
    def choose(cls, splits: int, buckets: int, text: float) -> "Exchange":
        """Return the layout for a corpus of `text` bytes: a function of the arguments only."""
        if splits * buckets <= DIRECT:
            return cls(splits=splits, buckets=buckets, ranges=buckets, groups=splits)
        files = max(1.0, text / MERGED_BYTES)
        ranges = min(buckets, max(1, round(math.sqrt(files * buckets / splits))))
        groups = min(splits, max(1, math.ceil(files / ranges)))
        return cls(splits=splits, buckets=buckets, ranges=ranges, groups=groups)

    @property
    def merges(self) -> bool:
        """Return whether a merge step runs between the phases."""
        return self.splits * self.buckets > DIRECT

    def group(self, split: int) -> int:
        """Return the group of a split."""
        return split * self.groups // self.splits

    def first(self, index: int) -> int:
        """Return the first bucket of a range; `index=ranges` gives the number of buckets."""
        return -(-index * self.buckets // self.ranges)

    def range_of(self, bucket: int) -> int:
        """Return the range of a bucket."""
        return bucket * self.ranges // self.buckets
