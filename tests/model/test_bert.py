
import pytest
import torch
from omegaconf import OmegaConf

from model.bert import BertForPreTraining
from model.config import ModelConfig

VOCAB = 1000


def size(root, name: str, **changes) -> ModelConfig:
    loaded = OmegaConf.to_container(OmegaConf.load(root / "conf" / "model" / f"{name}.yaml"))
    return ModelConfig(**{"vocab_size": VOCAB, **loaded, **changes})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("tiny", 4_433_468), ("base", 110_106_428), ("large", 336_226_108)],
)
def test_published_sizes_have_as_many_parameters_as_bert(root, name, parameters):
    with torch.device("meta"):
        model = BertForPreTraining(size(root, name, vocab_size=30522))
    assert sum(p.numel() for p in model.parameters()) == parameters
