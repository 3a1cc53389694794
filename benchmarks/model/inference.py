r"""Texts a second and milliseconds a text on one core: `embed` and `predict` next to who else serves a folder.

    python -m benchmarks.model.inference --pretrained work/sample/convert --text FILE

All make one vector of a text, tokenizing included, with one thread: the mean of the last hidden states
(`predict` the logits of two classes, with random weights). "alone" is one text of that many tokens at a
time; "lines" the lines of a file, which each peer gets at once and orders by length as it does by itself
(transformers, onnxruntime and CTranslate2 are given batches of `--batch`, ordered by length). Peers
take turns; what counts is processor time, the least of `--passes`. `--size mini` takes
random weights of that size with the folder's vocabulary. Needs `pip install -e '.[onnx]'`;
sentence-transformers and CTranslate2 are left out where they are not installed.
"""

import argparse
import functools
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.data.prepare import read
from benchmarks.model.train_worker import model_config
from benchmarks.shared import heading, keep, timed
from model.encoders.architectures import build_model, parameter_shapes
from model.finetuning import features, loop
from model.finetuning.embeddings import Embedder
from model.finetuning.heads import BertWithHead, HeadConfig
from model.finetuning.quantized import QuantizedModel
from model.huggingface import bert_format, onnx_export
from pipeline.tokenization.wordpiece import WordPiece

Texts = Sequence[str]
Peer = Callable[[list[str]], Any]  # texts to vectors `(N, H)`, in their order
LENGTHS = (16, 64, 128, 512)
PLACES = "encoder.embeddings.position.weight"
UNTRAINED = ("masked_head", "next_sentence", "pooler")  # heads that the graph needs not have


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrained", required=True, type=Path, help="a Hugging Face folder")
    parser.add_argument("--size", help="random weights of this size instead, such as mini")
    parser.add_argument("--text", type=Path, help="a file of lines; the sample corpus if not set")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of a text alone")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--passes", type=int, default=3)
    parser.set_defaults(length=0, dropout=0.0, attention="auto")  # of a size
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    text = options.text.read_text(encoding="utf-8") if options.text else "\n".join(read(None))
    lines = [line for line in text.splitlines() if line.strip()][: options.lines]
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        folder = folder_of(options, Path(temporary))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        longest = bert_format.load(folder)[0].positions
        peers = peers_of(folder, tokenizer, longest, options.batch)
        given = {
            f"{length} alone": [alone(tokenizer, lines, length)] for length in options.lengths if length <= longest
        }
        show(measured(peers, given | {"lines": lines}, options.passes), len(lines))


def folder_of(options: argparse.Namespace, place: Path) -> Path:
    """Return a copy of the folder, or one of random weights, with a graph of the encoder in fp32 and int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder = place / "model"
    size, state, *_ = bert_format.load(options.pretrained)
    if options.size:
        assert size.vocab_size is not None
        size = model_config(options, size.vocab_size)
        state = build_model(size).state_dict()
    bert_format.save(folder, size, state, options.pretrained)
    if size.architecture == "bert":  # the same network as a RoBERTa
        small = replace(size, architecture="roberta")
        own = {name: state[name] for name in parameter_shapes(small)}
        own[PLACES] = own[PLACES] + state["encoder.embeddings.segment.weight"][0]
        bert_format.save(place / "roberta", small, own, options.pretrained)
    (folder / onnx_export.FOLDER).mkdir()
    with torch.inference_mode(False), onnx_export.quiet():
        onnx.save(onnx_export.graph_of(onnx_export.Served(folder, UNTRAINED)), folder / onnx_export.MODEL)
        quantize_dynamic(folder / onnx_export.MODEL, folder / onnx_export.INT8, weight_type=QuantType.QUInt8)
    return folder


def alone(tokenizer: Any, lines: Texts, length: int) -> str:
    """Return the first words of the text that are `length` tokens, or the fewest more."""
    words = " ".join(lines).split()
    for count in range(1, len(words)):
        text = " ".join(words[:count])
        if len(tokenizer(text)["input_ids"]) >= length:
            return text
    raise SystemExit(f"the text has fewer than {length} tokens")


def peers_of(folder: Path, tokenizer: Any, longest: int, batch: int) -> dict[str, Peer]:
    """Return the peers that are installed."""
    peers = {"embed": embed(folder, longest), "predict": predict(folder, longest), "embed int8": int8(folder, longest)}

    def ordered(run: Callable[[list[str]], Any]) -> Peer:
        def vectors(texts: list[str]) -> Any:
            order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
            parts = [order[start : start + batch] for start in range(0, len(order), batch)]
            found = np.concatenate([run([texts[place] for place in part]) for part in parts])
            return found[np.argsort(order)]

        return vectors

    def encoded(texts: list[str], kind: str | None) -> Any:
        return tokenizer(texts, padding=kind is not None, truncation=True, max_length=longest, return_tensors=kind)

    for name, path in (("onnxruntime", onnx_export.MODEL), ("onnxruntime int8", onnx_export.INT8)):
        peers[name] = ordered(onnxruntime(folder / path, encoded))
    for attention in ("eager", "sdpa"):
        peers[f"transformers {attention}"] = ordered(hugging_face(folder, attention, encoded))
    if (roberta := folder.with_name("roberta")).exists():
        peers["embed, RoBERTa"] = embed(roberta, longest)
        peers["transformers sdpa, RoBERTa"] = ordered(hugging_face(roberta, "sdpa", encoded))
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        theirs = SentenceTransformer(str(folder), device="cpu")
        theirs.max_seq_length = longest  # else what was learnt, and the rest is not read
        peers["sentence-transformers"] = theirs.encode
    if importlib.util.find_spec("ctranslate2"):
        peers["CTranslate2"] = ordered(ctranslate2(folder, encoded))
    return peers


def embed(folder: Path, longest: int) -> Peer:
    """Return what the command does with a block of lines."""
    embedder, wordpiece = Embedder(folder, [-1], "concat", "mean"), WordPiece.load(folder)
    framing = features.TruncationConfig(longest)
    return lambda texts: embedder.vectors(features.tokenize(wordpiece, texts, None, [0.0] * len(texts), framing))


def int8(folder: Path, longest: int) -> Peer:
    """Return what `embed quantize=int8` does with a block of lines."""
    model, wordpiece, framing = QuantizedModel(folder), WordPiece.load(folder), features.TruncationConfig(longest)
    return lambda texts: model.vectors(features.tokenize(wordpiece, texts, None, [0.0] * len(texts), framing), "mean")


def predict(folder: Path, longest: int) -> Peer:
    """Return what the command does with a block of lines, for a classifier."""
    size, state, *_ = bert_format.load(folder)
    model = BertWithHead(size, HeadConfig("class", 2))
    model.load_state_dict(state, strict=False)
    wordpiece, framing = WordPiece.load(folder), features.TruncationConfig(longest)

    def logits(texts: list[str]) -> Any:
        samples = features.tokenize(wordpiece, texts, None, [0.0] * len(texts), framing)
        return loop.predict(model, samples, torch.device("cpu"))

    return logits


def onnxruntime(path: Path, encoded: Callable[[list[str], str], Any]) -> Peer:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    def vectors(texts: list[str]) -> Any:
        given = dict(encoded(texts, "np"))
        return mean(session.run([onnx_export.HIDDEN], given)[0], given["attention_mask"])

    return vectors


def hugging_face(folder: Path, attention: str, encoded: Callable[[list[str], str], Any]) -> Peer:
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation=attention).eval()

    def vectors(texts: list[str]) -> Any:
        given = encoded(texts, "pt")
        return mean(model(**given).last_hidden_state.numpy(), given["attention_mask"].numpy())

    return vectors


def ctranslate2(folder: Path, encoded: Callable[[list[str], None], Any]) -> Peer:
    import ctranslate2
    from ctranslate2.converters.transformers import TransformersConverter

    TransformersConverter(str(folder)).convert(str(folder / "ctranslate2"))
    encoder = ctranslate2.Encoder(str(folder / "ctranslate2"), intra_threads=1)

    def vectors(texts: list[str]) -> Any:
        ids = encoded(texts, None)["input_ids"]
        hidden = np.array(encoder.forward_batch(ids).last_hidden_state)
        lengths = np.array([len(one) for one in ids])
        return mean(hidden, np.arange(hidden.shape[1]) < lengths[:, None])

    return vectors


def mean(hidden: Any, mask: Any) -> Any:
    """Return the mean of hidden states `(N, L, H)` where `mask` `(N, L)`."""
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)


def measured(peers: dict[str, Peer], given: dict[str, list[str]], passes: int) -> dict[str, dict[str, float]]:
    """Return the seconds of processor time of a text, by what is given and by peer; say how far vectors are apart."""
    seconds: dict[str, dict[str, float]] = {}
    for name, texts in given.items():
        found = {peer: run(texts) for peer, run in peers.items()}
        apart = {
            peer: np.abs(np.stack(made) - found["embed"]).max() for peer, made in found.items() if peer != "predict"
        }
        print(f"{name}, vectors from embed's: " + ", ".join(f"{peer} {one:.0e}" for peer, one in apart.items()))
        repeats = 1 if len(texts) > 1 else 20
        for _ in range(passes):
            for peer, run in peers.items():
                work = functools.partial(repeat, run, texts, repeats)
                spent = timed(work)[1] / (repeats * len(texts))
                best = seconds.setdefault(name, {})
                best[peer] = min(spent, best.get(peer, spent))
    return seconds


def repeat(run: Peer, texts: list[str], times: int) -> None:
    for _ in range(times):
        run(texts)


def show(seconds: dict[str, dict[str, float]], lines: int) -> None:
    """Print milliseconds of a text alone and texts a second of lines, each with the ratio to embed's time."""
    print(heading(" | ".join(["peer", *seconds])))
    for peer in seconds["lines"]:
        cells = [
            f"{1 / spent[peer]:.0f}/s" if name == "lines" else f"{1000 * spent[peer]:.2f} ms"
            for name, spent in seconds.items()
        ]
        ratios = [spent[peer] / spent["embed"] for spent in seconds.values()]
        print(f"| {peer} | " + " | ".join(f"{cell}, {one:.2f}" for cell, one in zip(cells, ratios, strict=True)) + " |")
    print(f"{lines} lines, one thread; the second number is the time over embed's")
    of_lines = seconds["lines"]
    for peer in ("onnxruntime", "transformers sdpa", "sentence-transformers"):
        if peer in of_lines:
            for ours in ("embed", "embed int8"):
                keep(f"{ours}: {peer}", of_lines[peer] / of_lines[ours])


if __name__ == "__main__":
    main()
