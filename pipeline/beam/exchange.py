"""How documents get from splits to buckets in a number of reads that grows with the corpus alone.

Where there are few of both, the file of a split holds one record batch for each bucket. Where there
are many, a batch for each bucket would be a few bytes, and as many reads as splits times buckets.
Then the file of a split holds a batch for each *range* of buckets, and a step between the phases
merges one range of one *group* of splits into a file with a batch for each bucket. A merged file
has `MERGED_BYTES` on the average, so that there are as many as the corpus is large, and ranges and
groups are balanced, so that both steps read equally often.
"""

import dataclasses
import math

DIRECT = 2**14  # splits times buckets up to which one step is enough
MERGED_BYTES = 64 * 2**20  # of text in a merged file; its task has a few times that in memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exchange:
    """Which batch of which file has which documents."""

    splits: int
    buckets: int
    ranges: int  # of buckets; as many as buckets where nothing is merged
    groups: int  # of splits; as many as splits where nothing is merged

    @classmethod
    def choose(cls, splits: int, buckets: int, text: float) -> "Exchange":
        """The layout for a corpus of `text` bytes: a function of these numbers alone."""
        if splits * buckets <= DIRECT:
            return cls(splits=splits, buckets=buckets, ranges=buckets, groups=splits)
        files = max(1.0, text / MERGED_BYTES)
        ranges = min(buckets, max(1, round(math.sqrt(files * buckets / splits))))
        groups = min(splits, max(1, math.ceil(files / ranges)))
        return cls(splits=splits, buckets=buckets, ranges=ranges, groups=groups)

    @property
    def merges(self) -> bool:
        """Whether there is a step between the phases."""
        return self.splits * self.buckets > DIRECT

    def group(self, split: int) -> int:
        """The group of a split."""
        return split * self.groups // self.splits

    def first(self, index: int) -> int:
        """The first bucket of a range; of the range after the last, the number of buckets."""
        return -(-index * self.buckets // self.ranges)

    def range_of(self, bucket: int) -> int:
        """The range of a bucket."""
        return bucket * self.ranges // self.buckets
