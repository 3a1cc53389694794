#!/usr/bin/env bash
# keras 3.15.1 (any optimizer with use_ema=True and gradient_accumulation_steps), jax 0.7.2 as the backend.
#
# Guess: four batches that are accumulated are one step for all that the optimizer keeps, as its docstring says ("model
#   & optimizer variables will not be updated at every step"; of the average, that it looks at "accumulated"
#   iterations): weights and their moving average are those of one batch four times as large.
# Seen: the weights are. The average takes a share of them after each batch, four times for one update, so that its
#   momentum is the fourth power of what was asked for: 0.99 is 0.96, 0.999 with 32 batches 0.969. It follows the last
#   few updates instead of a hundred. The averaged weights are those that fit leaves in the model at the end.
# What follows: an average that is hardly one, without a word. Give ema_momentum ** (1 / steps).
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check keras==3.15.1 jax==0.7.2 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import keras
import numpy as np

MOMENTUM, STEPS, UPDATES = 0.9, 4, 50
gradients = np.random.default_rng(0).normal(1, 1, (UPDATES, STEPS)).astype(np.float32)


def train(momentum: float, steps: int | None) -> tuple[float, float]:
    weight = keras.Variable(np.zeros(1, np.float32))
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=momentum, gradient_accumulation_steps=steps)
    optimizer.build([weight])
    for row in gradients:
        for gradient in [row.mean()] if steps is None else row:
            optimizer.apply([keras.ops.convert_to_tensor([gradient])], [weight])
    last = float(weight.numpy()[0])
    optimizer.finalize_variable_values([weight])
    return last, float(weight.numpy()[0])


whole, parts = train(MOMENTUM, None), train(MOMENTUM, STEPS)
fourth, root = train(MOMENTUM**STEPS, None), train(MOMENTUM ** (1 / STEPS), STEPS)
for about, values in (("large batches", whole), (f"{STEPS} batches accumulated", parts)):
    print(f"{about}: weight {values[0]:.4f}, average {values[1]:.4f} (momentum {MOMENTUM})")
print(f"large batches, momentum {MOMENTUM**STEPS:.3f}: average {fourth[1]:.4f}")
print(f"accumulated, momentum {MOMENTUM ** (1 / STEPS):.3f}: average {root[1]:.4f}")
seen = abs(whole[0] - parts[0]) < 1e-4 and abs(whole[1] - parts[1]) > 0.1
sys.exit(not (seen and abs(parts[1] - fourth[1]) < 0.1 and abs(root[1] - whole[1]) < 0.1))
PYTHON
KERAS_BACKEND=jax venv/bin/python try.py
