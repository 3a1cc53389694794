#!/usr/bin/env bash
# onnxruntime 1.32.0 (CPU), onnx 1.23.2.
#
# Guess: a graph of int8 weights with a scale for each column, DequantizeLinear and then MatMul in float32, is computed
#   as written: optimizations keep what a graph means.
# Seen: by default the two nodes become one MatMulNBits that rounds the activations to int8 as well (its accuracy_level
#   is 4, the default of session.qdq_matmulnbits_accuracy_level): with one large dimension, as encoders have, values
#   are off by a fiftieth of the largest. With the level 0, or ORT_ENABLE_BASIC, they are exact.
# What follows: models whose weights alone were quantized, to keep activations exact, lose that; set the level to 0.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0
cat > try.py <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SIZE = 768
random = np.random.default_rng(5)
weights = random.integers(-127, 127, (SIZE, SIZE)).astype(np.int8)
scales = (random.random(SIZE) / 2000 + 0.0005).astype(np.float32)
activations = random.normal(size=(1, 16, SIZE)).astype(np.float32)
activations[..., 5] *= 60
nodes = [
    helper.make_node("DequantizeLinear", ["weights", "scales", "zeros"], ["floats"], axis=1),
    helper.make_node("MatMul", ["activations", "floats"], ["product"]),
]
tensors = {"weights": weights, "scales": scales, "zeros": np.zeros(SIZE, np.int8)}
graph = helper.make_graph(
    nodes,
    "weights",
    [helper.make_tensor_value_info("activations", TensorProto.FLOAT, ["batch", "length", SIZE])],
    [helper.make_tensor_value_info("product", TensorProto.FLOAT, ["batch", "length", SIZE])],
    [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
onnx.checker.check_model(model)
onnx.save(model, "model.onnx")
wanted = activations @ (weights * scales)


def furthest(level: onnxruntime.GraphOptimizationLevel, accuracy: str | None) -> tuple[float, str]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = "seen.onnx"
    options.log_severity_level = 3
    if accuracy:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", accuracy)
    session = onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"activations": activations})
    kinds = " ".join(node.op_type for node in onnx.load("seen.onnx").graph.node)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max()), kinds


levels = onnxruntime.GraphOptimizationLevel
results = {
    "default": furthest(levels.ORT_ENABLE_ALL, None),
    "accuracy level 0": furthest(levels.ORT_ENABLE_ALL, "0"),
    "basic": furthest(levels.ORT_ENABLE_BASIC, None),
}
for name, (error, kinds) in results.items():
    print(f"{name}: {kinds}, largest error {error:.1e} of the largest value")
off, kinds = results.pop("default")
sys.exit(not (off > 5e-3 and kinds == "MatMulNBits" and max(error for error, _ in results.values()) < 1e-5))
PYTHON
env/bin/python try.py
