#!/usr/bin/env bash
# onnxruntime 1.32.0 (CPU), onnx 1.23.2: the operator Attention of opsets 23 and 24.
#
# Guess: a mask of padding, (batch, 1, 1, keys), is spread over heads and queries, as the operator's text says ("shape
#   must be broadcastable to (batch_size, q_num_heads, q_sequence_length, total_sequence_length)").
# Seen: checker and shape inference accept it, onnx's reference computes it, the session opens; each run raises FAIL.
#   Batch and heads may be 1, queries may not: of the shapes tried, an encoder's mask of padding alone fails.
# What follows: expand it to (batch, 1, queries, keys) in the graph, which is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$place"
venv/bin/python - <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)
BATCH, HEADS, LENGTH, WIDTH = 2, 4, 5, 8
states = np.random.default_rng(0).normal(size=(BATCH, HEADS, LENGTH, WIDTH)).astype(np.float32)
keep = np.arange(LENGTH) < np.array([[5], [3]])  # (B, L): the second text has two tokens of padding


def compare(mask: np.ndarray, opset: int) -> str:
    inputs = [
        helper.make_tensor_value_info("states", TensorProto.FLOAT, states.shape),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, mask.shape),
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, states.shape)
    node = helper.make_node("Attention", ["states", "states", "states", "mask"], ["out"])
    graph = helper.make_graph([node], "attention", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    feeds = {"states": states, "mask": mask}
    reference = ReferenceEvaluator(model).run(None, feeds)[0]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    try:
        return "equal" if np.allclose(session.run(None, feeds)[0], reference, atol=1e-5) else "different"
    except Exception as error:
        print(mask.shape, str(error).rpartition("was false.")[2].strip() or error)
        return type(error).__name__


padding = keep[:, None, None, :]
masks = {
    "(B, 1, 1, L)": padding,
    "(B, H, 1, L)": np.repeat(padding, HEADS, axis=1),
    "(B, 1, L, L)": np.repeat(padding, LENGTH, axis=2),
    "(1, 1, L, L)": np.tri(LENGTH, dtype=bool)[None, None],
    "(L, L)": np.tri(LENGTH, dtype=bool),
}
want = ["Fail", "Fail", "equal", "equal", "equal"]
wrong = 0
for opset in (23, 24):
    seen = [compare(mask, opset) for mask in masks.values()]
    print(f"opset {opset}:", dict(zip(masks, seen)))
    wrong += seen != want
sys.exit(wrong != 0)
PYTHON
