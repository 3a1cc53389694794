"""Each program that reads weights or graphs for itself computes the hidden states of our graph."""

import functools
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.consumers.conftest import TEXTS, outputs, python_with

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Program:
    """How a program gives the hidden states of texts, one text at a time."""

    packages: tuple[str, ...]
    script: str  # from `folder` and `texts` to `states`, a list for each text
    part: tuple[int | None, ...] = (None, None)  # of the tokens: from, to
    tolerance: float = 1e-5
    differs: dict[str, tuple[str, str]] = field(default_factory=dict)  # by case: how the check fails, and why
    gives: str = ""  # what it gives instead, in the page's words


IDS = """
from transformers import AutoTokenizer
ids = [AutoTokenizer.from_pretrained(folder)(text)["input_ids"] for text in texts]
"""
PROGRAMS = {
    "transformers": Program(
        ("transformers==5.24.0",),
        f"""{IDS}
import torch
from transformers import AutoModel
model = AutoModel.from_pretrained(folder).eval()
states = [model(torch.tensor([one])).last_hidden_state[0].tolist() for one in ids]
""",
    ),
    "onnxruntime": Program(
        ("onnxruntime==1.32.0",),
        f"""{IDS}
import onnxruntime
session = onnxruntime.InferenceSession(folder + "/onnx/model.onnx")
given = AutoTokenizer.from_pretrained(folder)
states = [
    session.run(["last_hidden_state"], dict(given([text], return_tensors="np")))[0][0].tolist() for text in texts
]
""",
    ),
    "OpenVINO": Program(
        ("openvino==2026.4.1",),
        f"""{IDS}
import numpy, openvino
model = openvino.Core().compile_model(folder + "/onnx/model.onnx", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
given = AutoTokenizer.from_pretrained(folder)
states = [model(dict(given([text], return_tensors="np")))["last_hidden_state"][0].tolist() for text in texts]
""",
    ),
    "CTranslate2": Program(
        ("ctranslate2==4.8.5",),
        f"""{IDS}
import ctranslate2, numpy, tempfile
from ctranslate2.converters.transformers import TransformersConverter
made = tempfile.mkdtemp()
TransformersConverter(folder).convert(made, force=True)
encoder = ctranslate2.Encoder(made)
states = [numpy.array(encoder.forward_batch([one]).last_hidden_state)[0].tolist() for one in ids]
""",
        differs={"ModernBERT": ("No conversion is registered", "no ModernBERT")},
    ),
    # ModernBERT has no default of target_modules.
    "PEFT": Program(
        ("peft==0.21.2",),
        f"""{IDS}
import tempfile, torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModel
made = tempfile.mkdtemp()
adapted = get_peft_model(AutoModel.from_pretrained(folder), LoraConfig(r=2, target_modules="all-linear"))
assert [name for name, one in adapted.named_parameters() if one.requires_grad and "lora_" in name]
adapted.save_pretrained(made)
model = PeftModel.from_pretrained(AutoModel.from_pretrained(folder), made).merge_and_unload().eval()
states = [model(torch.tensor([one])).last_hidden_state[0].tolist() for one in ids]
""",
    ),
    "spaCy": Program(
        ("spacy==3.8.18", "spacy-curated-transformers==0.3.1"),
        """
import spacy
from spacy_curated_transformers import tokenization
from spacy_curated_transformers.models.hf_loader import build_hf_transformer_encoder_loader_v1 as weights_of
sizes = json.load(open(folder + "/config.json"))
kind = sizes["model_type"]
if kind == "roberta":
    names = "Roberta", "ByteBpe"
    pieces = tokenization.build_byte_bpe_encoder_loader_v1(
        vocab_path=folder + "/vocab.json", merges_path=folder + "/merges.txt")
elif kind == "xlm-roberta":
    names = "Xlmr", "XlmrSentencepiece"
    pieces = tokenization.build_sentencepiece_encoder_loader_v1(path=folder + "/sentencepiece.bpe.model")
else:
    names = {"bert": "Bert"}.get(kind, kind), "BertWordpiece"
    pieces = tokenization.build_hf_piece_encoder_loader_v1(name=folder)
name = "spacy-curated-transformers.%s"
config = {"@architectures": name % names[0] + "Transformer.v1", "layer_norm_eps": sizes.get("layer_norm_eps")} | {
    ours: sizes[theirs] for ours, theirs in [
        ("vocab_size", "vocab_size"), ("hidden_width", "hidden_size"), ("num_hidden_layers", "num_hidden_layers"),
        ("num_attention_heads", "num_attention_heads"), ("intermediate_width", "intermediate_size"),
        ("max_position_embeddings", "max_position_embeddings"), ("model_max_length", "max_position_embeddings")]
} | {
    "piece_encoder": {"@architectures": name % names[1] + "Encoder.v1"},
    "with_spans": {"@architectures": name % "WithStridedSpans.v1"},
}
nlp = spacy.blank("en")
model = nlp.add_pipe("curated_transformer", config={"model": config}).model
model.get_ref("transformer").init = weights_of(name=folder)
encoder = model.get_ref("piece_encoder")
(encoder.get_ref("encoder") if kind == "xlm-roberta" else encoder).init = pieces  # the whole takes no notice of it
nlp.initialize()
states = [nlp(text)._.trf_data.last_hidden_layer_state.dataXd.tolist() for text in texts]
""",
        part=(1, -1),
        differs={
            "ModernBERT": (
                "Could not find function",
                "no ModernBERT; of RoBERTa's family by `ByteBpeLoader`, or `SentencepieceLoader` of the inner encoder",
            )
        },
    ),
    "flair": Program(
        ("flair==0.15.1", "datasets<4.5"),
        """
from flair.data import Sentence
from flair.embeddings import TransformerDocumentEmbeddings
embedding = TransformerDocumentEmbeddings(folder, layers="-1", fine_tune=False)
states = []
for text in texts:
    sentence = Sentence(text)
    embedding.embed(sentence)
    states.append([sentence.embedding.tolist()])
""",
        part=(0, 1),
        gives=" by `[CLS]`",
        differs={
            "ModernBERT": ("Not equal to tolerance", "of ModernBERT, states before the last norm"),
            "RoBERTa": ("Not equal to tolerance", "of byte-level BPE, a space before the first word"),
        },
    ),
    "keras-hub": Program(
        ("keras-hub==0.32.0",),
        """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras_hub, numpy
backbone = keras_hub.models.Backbone.from_preset(folder)
tokenizer = keras_hub.models.Tokenizer.from_preset(folder)
framing = [getattr(tokenizer, name, None) or 0 for name in ("cls_token_id", "sep_token_id")]
if not any(framing):
    framing = tokenizer.start_token_id, tokenizer.end_token_id
states = []
for text in texts:
    one = [framing[0], *map(int, tokenizer(text)), framing[1]]
    given = {"token_ids": numpy.array([one]), "segment_ids": numpy.zeros((1, len(one)), int),
             "padding_mask": numpy.ones((1, len(one)), bool)}
    given = {name: given[name] for name in backbone.input}
    states.append((made["sequence_output"] if isinstance(made := backbone(given), dict) else made)[0].tolist())
""",
        tolerance=1e-3,
        differs={
            "ModernBERT": ("no converter for", "no ModernBERT"),
            "accents": ("Not equal to tolerance", "GELU by tanh, 1e-4 off; keeps accents that the tokenizer drops"),
        },
    ),
}


CASES = {
    "BERT": ("fill-mask", TEXTS[:1]),
    "accents": ("fill-mask", TEXTS[1:]),
    "ModernBERT": ("modern fill-mask", TEXTS),
    "RoBERTa": ("RoBERTa fill-mask", TEXTS[:1]),
    "XLM-R": ("XLM-R fill-mask", TEXTS[:1]),
    "sentence models": ("feature-extraction", TEXTS[:1]),
}
MARKED = [
    pytest.param(name, marks=pytest.mark.tool(name, one.packages[0].partition("==")[2]))
    for name, one in PROGRAMS.items()
]


ALL_CASES = """
import json, sys
script, cases = json.loads(sys.argv[1])
found = {}
for case, (folder, texts) in cases.items():
    given = {"folder": folder, "texts": texts, "json": json}
    try:
        exec(script, given)
        found[case] = given["states"]
    except Exception as error:
        found[case] = repr(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(folders):
    """What a program, started once, gives for each case."""

    @functools.cache
    def run(name):
        cases = {case: (str(folders[kind]), texts) for case, (kind, texts) in CASES.items()}
        return python_with(name.lower(), *PROGRAMS[name].packages)(ALL_CASES, [PROGRAMS[name].script, cases])

    return run


def compare(program, folder, texts, found):
    assert not isinstance(found, str), found
    for text, states in zip(texts, found, strict=True):
        expected = outputs(folder, [text])["last_hidden_state"][0][slice(*program.part)]
        np.testing.assert_allclose(states, expected, atol=program.tolerance)


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("case", CASES)
def test_hidden_states_are_those_of_the_graph(name, case, found, folders, record_property):
    program, (kind, texts) = PROGRAMS[name], CASES[case]
    if case in program.differs:
        message, why = program.differs[case]
        with pytest.raises(AssertionError, match=message):
            compare(program, folders[kind], texts, found(name)[case])
        record_property("differs", why)
    else:
        compare(program, folders[kind], texts, found(name)[case])
        if case != "accents":
            record_property("works", f"{case}{program.gives}")
