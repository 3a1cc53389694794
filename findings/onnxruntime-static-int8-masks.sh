#!/usr/bin/env bash
# onnxruntime 1.32.0 (quantization.quantize_static), onnx 1.23.2.
#
# Guess: static int8 of an encoder with real texts for calibration costs a little of the vectors' accuracy, padded or
#   not: the attention mask, 0 or a very small number that is added to the scores, is not for rounding.
# Seen: the Add of the mask is quantised as all others. Calibrated on padded batches, as real ones are, its scale has to
#   span the mask, so that all scores are one number and attention is the plain mean of the text: the cosine to float32
#   falls to 0.4, also of texts without padding. So it is with the smallest float32, which transformers exports, and
#   with -10,000. Calibrated on texts of one length all looks right. No warning.
# What follows: give op_types_to_quantize=["MatMul", "Gemm"] (weights are all in these), or quantise dynamically.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import logging
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

logging.disable()
WORDS, WIDTH, LENGTH = 200, 32, 16
rng = np.random.default_rng(0)


def encoder(smallest: float) -> None:
    weights = {name: rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for name in ("query", "key", "value", "out")}
    weights |= {"words": 1.5 * rng.normal(size=(WORDS, WIDTH)), "scale": np.array(WIDTH**-0.5)}
    weights |= {"one": np.array(1.0), "smallest": np.array(smallest)}
    steps = [
        ("Gather", ["words", "input_ids"], "x", {}), ("MatMul", ["x", "query"], "q", {}),
        ("MatMul", ["x", "key"], "k", {}), ("MatMul", ["x", "value"], "v", {}),
        ("Transpose", ["k"], "kt", {"perm": [0, 2, 1]}), ("MatMul", ["q", "kt"], "products", {}),
        ("Mul", ["products", "scale"], "scores", {}), ("Sub", ["one", "attention_mask"], "padding", {}),
        ("Mul", ["padding", "smallest"], "added", {}), ("Add", ["scores", "added"], "masked", {}),
        ("Softmax", ["masked"], "shares", {"axis": -1}), ("MatMul", ["shares", "v"], "mixed", {}),
        ("MatMul", ["mixed", "out"], "hidden", {}),
    ]
    nodes = [helper.make_node(kind, given, [result], **options) for kind, given, result, options in steps]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.FLOAT, ["batch", 1, "length"])
    hidden = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", WIDTH])
    graph = helper.make_graph(nodes, "encoder", [ids, mask], [hidden], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "fp32.onnx")


def batch(length: int) -> dict[str, np.ndarray]:
    mask = np.ones((2, 1, LENGTH), np.float32)
    mask[1, 0, length:] = 0
    return {"input_ids": rng.integers(0, WORDS, (2, LENGTH)), "attention_mask": mask}


class Texts(CalibrationDataReader):
    def __init__(self, length: int) -> None:
        self.batches = iter([batch(length) for _ in range(20)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return round(float((one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other)), 3)


seen, texts = [], batch(LENGTH // 2)
for smallest in (float(np.finfo(np.float32).min), -10000.0):
    encoder(smallest)
    right = onnxruntime.InferenceSession("fp32.onnx").run(None, texts)[0]
    for length in (LENGTH // 2, LENGTH):
        for kinds in (None, ["MatMul"]):
            quantize_static("fp32.onnx", "int8.onnx", Texts(length), op_types_to_quantize=kinds)
            got = onnxruntime.InferenceSession("int8.onnx").run(None, texts)[0]
            pair = cosine(got[0], right[0]), cosine(got[1, : LENGTH // 2], right[1, : LENGTH // 2])
            about = "padded" if length < LENGTH else "equal"
            print(f"mask {smallest:.3g}, calibrated on {about} texts, {kinds or 'all kinds'}: "
                  f"cosine to float32 of a full text {pair[0]}, of a padded one {pair[1]}")
            seen.append(max(pair) < 0.9 if kinds is None and length < LENGTH else min(pair) > 0.98)
sys.exit(not all(seen))
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
