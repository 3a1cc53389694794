"""Every small YAML trains; those that say how, not what, change nothing that is learnt."""

import pytest

from benchmarks.small import write_prepared
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.conftest import SMALL, losses, rows, train_many

pytestmark = pytest.mark.slow

DROPOUT = ("model.dropout=0.1", "model.attention_dropout=0.1")
SAME = {  # how: processes and settings
    "plain": (1, ("deepspeed=zero0",)),
    "recompute": (1, ("deepspeed=zero0", "compute=recompute")),
    "recompute3": (2, ("deepspeed=zero3", "compute=recompute")),
    "compile": (1, ("deepspeed=zero1", "compute=compile")),
    "offload2": (2, ("deepspeed=zero2_offload",)),
    "offload3": (2, ("deepspeed=zero3_offload",)),
}
BY_LAMB = ("optimizer=lamb", "optimizer.learning_rate=2e-2")
LAMB = {
    "lamb": (1, ("deepspeed=zero0", *BY_LAMB)),
    "lamb-offload2": (2, ("deepspeed=zero2_offload", *BY_LAMB)),
    "lamb-offload3": (2, ("deepspeed=zero3_offload", *BY_LAMB)),
}
OTHER = {
    "dropout": (2, DROPOUT),
    "dropout-again": (2, DROPOUT),
    "dropout-recompute": (2, (*DROPOUT, "compute=recompute")),
    "bf16": (2, ("deepspeed=zero2", "precision=bf16")),
    **{name: (1, (f"objective={name}",)) for name in ("mlm", "wwm", "span")},
    "sop": (1, ("objective=sop", "data.dir=${workdir}/prepare-sop")),
    "mixture": (2, ("data.more=[${workdir}/prepare-more]", "data.weights=[1,2]")),
    "causal": (1, ("objective=left_to_right", "model.causal=true")),
}
COMPILED = {"dropout-compile": (2, (*DROPOUT, "compute=compile"))}
RUNS = SAME | LAMB | OTHER | COMPILED


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    folder = tmp_path_factory.mktemp("choices")
    wordpiece = WordPiece.load(work / "vocab")
    write_prepared(work / "prepare-sop", wordpiece, pairs="sop")
    write_prepared(work / "prepare-more", wordpiece, seed=1)
    common = [f"workdir={work}", *SMALL]
    train_many([(processes, [f"out={folder / name}", *common, *more]) for name, (processes, more) in RUNS.items()])
    return folder


ALIKE = [(how, "plain") for how in [*SAME][1:]] + [(how, "lamb") for how in [*LAMB][1:]]
ALIKE += [("dropout-compile", "dropout")]


@pytest.mark.parametrize(("how", "usual"), ALIKE)
def test_how_it_is_computed_does_not_change_the_curve(runs, how, usual):
    assert losses(runs / how) == pytest.approx(losses(runs / usual), abs=1e-4)


@pytest.mark.parametrize("again", ["dropout-again", "dropout-recompute"])
def test_the_same_seed_gives_the_same_bits_on_two_processes(runs, again):
    figures = ("loss", "masked_lm_accuracy", "gradient_norm", "tokens")
    one, other = ([[row[f] for f in figures] for row in rows(runs / n)] for n in ("dropout", again))
    assert one == other
    weights = [next((runs / n).glob("checkpoints/*/step-*/model.safetensors")).read_bytes() for n in ("dropout", again)]
    assert weights[0] == weights[1]
    assert one != [[row[f] for f in figures] for row in rows(runs / "plain")]


@pytest.mark.parametrize("name", ["bf16", *list(OTHER)[4:]])
def test_every_choice_learns(runs, name):
    curve = losses(runs / name)
    assert curve[-1] < curve[0] - 0.3
    assert "next_sentence_loss" not in rows(runs / name)[0] or name not in ("mlm", "span", "causal")


def test_low_precision_stays_near(runs):
    assert losses(runs / "bf16") == pytest.approx(losses(runs / "plain"), abs=0.05)
