"""Print what `hours=` reaches on this machine by the words of a text: a row for each size of text.

    python -m benchmarks.records.plans

English of the records' usual density; the machine's steps are measured first. A cell has the size, and the
bits per byte that the law expects.
"""

from model.training import probe
from pipeline.common import cores
from pipeline.orchestration.planner import SHOWN, Choice, Text, Typed, best_of_sizes

WORDS = (100_000, 1_000_000, 10_000_000, 100_000_000)
BYTES_A_WORD = 5.17  # without white space, of the records' English Wikipedia
COUNTED = 1e6  # words a second


def main() -> None:
    rates = probe.measured_rates(cores.available())
    print("| words | " + " | ".join(f"{hours:g} h" for hours in SHOWN) + " |")
    print("|---:" * (1 + len(SHOWN)) + "|")
    for words in WORDS:
        cells = (best(words, hours, rates) for hours in SHOWN)
        print(f"| {words:,} | " + " | ".join(f"{one.size}: {one.expected.bits:.2f}" for one in cells) + " |")


def best(words: int, hours: float, rates: probe.Rates) -> Choice:
    """Return the plan of a text by its number of words."""
    text = Text(words, int(words * BYTES_A_WORD), None, True, words / COUNTED)
    return best_of_sizes(hours, text, rates, 1.0, Typed())[0]


if __name__ == "__main__":
    main()
