"""BERT in Hugging Face format.

The decoder of the masked-LM head is the word embeddings: as in Hugging Face's files, ours have no
`cls.predictions.decoder.*`.
"""

from typing import Any

from torch import Tensor

from model.config import ModelConfig
from model.encoders.bert import SEGMENTS
from model.huggingface.names import ANSWER, CHOICE, CLASS, SIZES, TAG, Names

PARTS = {
    "encoder.embeddings.word": "bert.embeddings.word_embeddings",
    "encoder.embeddings.position": "bert.embeddings.position_embeddings",
    "encoder.embeddings.segment": "bert.embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "encoder.layers.{}.qkv.query_bias": "bert.encoder.layer.{}.attention.self.query.bias",
    "encoder.layers.{}.qkv.key_bias": "bert.encoder.layer.{}.attention.self.key.bias",
    "encoder.layers.{}.qkv.value_bias": "bert.encoder.layer.{}.attention.self.value.bias",
    "encoder.layers.{}.qkv.query": "bert.encoder.layer.{}.attention.self.query.weight",
    "encoder.layers.{}.qkv.key": "bert.encoder.layer.{}.attention.self.key.weight",
    "encoder.layers.{}.qkv.value": "bert.encoder.layer.{}.attention.self.value.weight",
    "encoder.layers.{}.mix.dense": "bert.encoder.layer.{}.attention.output.dense",
    "encoder.layers.{}.mix.norm": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "encoder.layers.{}.up": "bert.encoder.layer.{}.intermediate.dense",
    "encoder.layers.{}.down.dense": "bert.encoder.layer.{}.output.dense",
    "encoder.layers.{}.down.norm": "bert.encoder.layer.{}.output.LayerNorm",
    "pooler": "bert.pooler",
    "masked_head.bias": "cls.predictions.bias",
    "masked_head.dense": "cls.predictions.transform.dense",
    "masked_head.norm": "cls.predictions.transform.LayerNorm",
    "next_sentence": "cls.seq_relationship",
}
BUFFERS = ("position_ids", "token_type_ids")  # of old versions, not weights


def canonical(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the prefix `bert.`, rename gamma and beta, and drop buffers."""
    bare = not any(name.startswith("bert.") for name in found)
    renamed = {}
    for name, tensor in found.items():
        if name.rpartition(".")[2] in BUFFERS:
            continue
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        inside = name.startswith(("embeddings.", "encoder.", "pooler."))
        renamed[f"bert.{name}" if bare and inside else name] = tensor
    bias = renamed.pop("cls.predictions.decoder.bias", None)
    if bias is not None:
        renamed.setdefault("cls.predictions.bias", bias)
    return renamed


def settings(config: ModelConfig, entries: list[str]) -> dict[str, Any]:
    """Return the fields of config.json for special entries and constants."""
    return {"pad_token_id": entries.index("[PAD]"), "classifier_dropout": None, "use_cache": True}


BERT = Names(
    model_type="bert",
    title="BERT",
    pretrained="BertForPreTraining",
    tuned={
        CLASS: "BertForSequenceClassification",
        CHOICE: "BertForMultipleChoice",
        TAG: "BertForTokenClassification",
        ANSWER: "BertForQuestionAnswering",
    },
    answer_head="qa_outputs",
    parts=PARTS,
    sizes=SIZES
    | {
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "initializer_range": "initializer_range",
        "layer_norm_epsilon": "layer_norm_eps",
        "causal": "is_decoder",
    },
    defaults={},
    fixed={
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "type_vocab_size": SEGMENTS,
        "tie_word_embeddings": True,
    },
    heads=("pooler.", "masked_head.", "next_sentence."),
    words="bert.embeddings.word_embeddings.weight",
    decoder="cls.predictions.decoder.weight",
    canonical=canonical,
    pack=dict,
    settings=settings,
    read=lambda theirs: {},
    tokenizer={
        "tokenizer_class": "BertTokenizer",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    },
    exact_attention="eager",
)
