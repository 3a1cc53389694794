"""Choices between endings."""

import numpy as np
import pytest

from model.finetuning.features import TruncationConfig
from pipeline.errors import InputError
from pipeline.evaluation import examples
from pipeline.evaluation.task_types.classification import Choice
from pipeline.tokenization.wordpiece import WordPiece
from tests.support.preparing import vocabulary
from tests.support.refusals import refused

SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,v,1,"a b, c","a, b",c,gold,d,e,"f, g",h,2\n'
    "1,v,1,x,b,c,gen,e,f,g,h,0\n"
)


@pytest.fixture
def kind(tmp_path):
    vocabulary(tmp_path, "abcdefgh,")
    (tmp_path / "train.csv").write_text(SWAG)
    return Choice(str(tmp_path), examples.task_of("swag"), WordPiece.load(tmp_path), TruncationConfig(30))


def test_each_ending_goes_on_from_the_sentence(kind):
    part = kind.read("train.csv")
    vocab = kind._wordpiece.vocab
    texts = [" ".join(vocab[n] for n in ids) for ids in part.samples.ids]
    assert (texts[0], texts[2]) == ("[CLS] a , b [SEP] c d [SEP]", "[CLS] a , b [SEP] c f , g [SEP]")
    assert (len(part), len(texts), part.truth) == (2, 8, [2, 0])
    answers = kind.decode(part, [np.eye(4, dtype=np.float32)[n] for n in (2, 1)])
    assert (answers, kind.score(part, answers)) == ([2, 1], {"accuracy": 0.5})
    assert len(kind.read("train.csv", rows=1)) == 1


def test_what_goes_on_from_one_sentence_is_kept_together(kind):
    assert kind.read("train.csv", keep=lambda text: text == "a, b").truth == [2]
    assert kind.read("train.csv", keep=lambda text: text == "b").truth == [0]


def test_a_row_without_an_ending_is_left_out_and_counted(kind, tmp_path):
    (tmp_path / "train.csv").write_text(SWAG.replace("e,f,g,h,0\n", "e, ,g,h,0\n"))
    part = kind.read("train.csv")
    assert (part.truth, part.malformed) == ([2], [f"{tmp_path / 'train.csv'}, line 3: an ending is empty"])


def test_a_label_of_no_ending_is_refused(kind, tmp_path):
    (tmp_path / "train.csv").write_text(SWAG.replace("h,0\n", "h,4\n"))
    with refused(InputError, "'4'", path=str(tmp_path / "train.csv"), line=3):
        kind.read("train.csv")
