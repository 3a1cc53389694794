r"""Scoring minimal pairs: ours next to minicons, same model, sentences and thread, in one run.

    python -m benchmarks.scores.minimal_pairs --pretrained work/sample/convert --data FOLDER --rows 1

A sample of BLiMP, `--rows` pairs of each paradigm, by pseudo-log-likelihood. Both take turns on the
same blocks of sentences, after one that does not count: a start is a tenth of a second of the minutes
that BLiMP takes. Ours has all sentences of a block at once, as `evaluate` has; minicons has
`--batch` sentences at once. What counts is processor time, as others may use the machine too; wall
time is printed next to it. Needs `pip install -e '.[benchmarks]'`.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.shared import keep

Scores = npt.NDArray[np.float64]
METRICS = {"pll": "original", "word_l2r": "within_word_l2r"}  # minicons' names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrained", required=True, help="a Hugging Face folder")
    parser.add_argument("--data", required=True, help="folder of BLiMP's files")
    parser.add_argument("--rows", type=int, default=1, help="pairs of each paradigm")
    parser.add_argument("--batch", type=int, default=16, help="sentences at once, minicons")
    parser.add_argument("--blocks", type=int, default=2, help="parts in which both take turns")
    parser.add_argument("--score", default="pll", choices=list(METRICS))
    options = parser.parse_args()
    sentences = sample(options)
    scorers = {"minicons": minicons(options), "ours": ours(options)}
    seconds = {name: np.zeros(2) for name in scorers}
    for score in scorers.values():
        score(sentences[: options.batch])
    apart = 0.0
    for part in np.array_split(np.arange(len(sentences)), options.blocks):
        block = [sentences[place] for place in part]
        found = {}
        for name, score in scorers.items():
            began = np.array([time.process_time(), time.perf_counter()])
            found[name] = score(block)
            seconds[name] += np.array([time.process_time(), time.perf_counter()]) - began
        apart = max(apart, float(np.abs(found["ours"] - found["minicons"]).max()))
    print(f"{len(sentences)} sentences, {options.score}, one thread")
    for name, (processor, wall) in seconds.items():
        rate = len(sentences) / processor
        print(f"{name:10}{processor:9.2f} s of processor {wall:9.2f} s {rate:9.1f} sentences/s")
    ratio = seconds["minicons"] / seconds["ours"]
    keep("minimal pairs: minicons", ratio[0])
    print(f"ours is {ratio[0]:.1f} times as fast ({ratio[1]:.1f} by the clock on the wall)")
    print(f"largest difference of a score {apart:.1e}")


def sample(options: argparse.Namespace) -> list[str]:
    """Return the good and bad sentences of the first pairs of each paradigm."""
    from pipeline.evaluation import examples, zero_shot

    pairs = zero_shot.read_pairs(options.data, examples.task_of("blimp"), options.rows)
    return [text for pair in zip(pairs.good, pairs.bad, strict=True) for text in pair]


def ours(options: argparse.Namespace) -> Callable[[list[str]], Scores]:
    """Our scorer, as `evaluate` uses it, tokenizing included."""
    import torch

    from model.encoders.architectures import build_model
    from model.finetuning import features
    from model.finetuning.sentence_scores import SentenceScorer
    from model.huggingface import bert_format
    from pipeline.tokenization.wordpiece import WordPiece

    size, state, *_ = bert_format.load(options.pretrained)
    model = build_model(size)
    model.load_state_dict(state)
    wordpiece = WordPiece.load(options.pretrained)
    scorer = SentenceScorer(model, wordpiece.mask, torch.device("cpu"))

    def score(block: list[str]) -> Scores:
        parts = features.texts(wordpiece, block)
        sequences = [features.frame(wordpiece, part, None)[0] for part in parts]
        goes_on = None
        if options.score == "word_l2r":
            goes_on = [np.pad(part, 1) for part in wordpiece.word_marks(block)]
        return scorer.scores(sequences, np.ones(len(block), np.int64), goes_on)

    return score


def minicons(options: argparse.Namespace) -> Callable[[list[str]], Scores]:
    """Return minicons' scorer, given tokens: its own tokenization needs transformers 4."""
    import torch
    from minicons import scorer

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model: Any = scorer.MaskedLMScorer(options.pretrained, "cpu")

    def score(block: list[str]) -> Scores:
        found: list[float] = []
        for start in range(0, len(block), options.batch):
            part = block[start : start + options.batch]
            encoded = model.tokenizer(part, padding="longest", return_tensors="pt")
            found += model.sequence_score(
                encoded, reduction=lambda one: float(one.sum()), PLL_metric=METRICS[options.score]
            )
        return np.array(found)

    return score


if __name__ == "__main__":
    main()
