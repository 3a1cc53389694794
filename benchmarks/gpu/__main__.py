"""All that is to be known of a GPU, in three parts of less than nine minutes each.

    python -m benchmarks.gpu A B C --out results     # on a machine with a GPU
    python -m benchmarks.gpu A B C --small           # the same steps, tiny: to try them on a CPU

A is correctness: the attention operator against plain attention, the model against itself in fp32,
no wait of the host inside a step, one graph for all sizes. B is a sweep of sizes, lengths and
tokens at a time, plain and compiled, with its MFU, and the products that it consists of. C is a
real pre-training by DeepSpeed, killed in the middle and resumed.

Each measurement is a line of `results/rows.jsonl` as soon as it is made, and `results/summary.md`
has all of them at the end. A and B need PyTorch and numpy alone; C says what is missing for it.
"""

import argparse
import importlib.util
import platform
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

from benchmarks.gpu.rows import Rows, table
from benchmarks.shared import read

PARTS = "ABC"


def stand_in_for_omegaconf() -> None:
    """Give the schema, which needs three names of omegaconf, these where it is not installed."""
    if importlib.util.find_spec("omegaconf") is None:
        module = ModuleType("omegaconf")
        vars(module).update(MISSING="???", DictConfig=dict, OmegaConf=None)
        sys.modules["omegaconf"] = module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--text", type=Path, help="folder of `vocab` and `prepare`, for C; default: random words")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        torch.set_num_threads(1)  # tiny products: threads would wait for one another
    stand_in_for_omegaconf()
    from benchmarks.gpu import correctness as gpu_correctness
    from benchmarks.gpu import sweep as gpu_sweep
    from benchmarks.gpu import training as gpu_training

    run: dict[str, Callable[[Rows, torch.device, bool], None]] = {
        "A": gpu_correctness.run,
        "B": gpu_sweep.run,
        "C": partial(gpu_training.run, text=options.text),
    }
    out = options.out.resolve()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for part in options.parts:
        rows = Rows(out, part)
        rows.add("machine", **machine(device))
        run[part](rows, device, options.small)
    found = read(out / "rows.jsonl")
    (out / "summary.md").write_text(table(found), encoding="utf-8")
    failed = [row["name"] for row in found if row.get("ok") is False]
    print(f"{out / 'summary.md'}: {len(found)} rows, failed: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


def machine(device: torch.device) -> dict[str, str]:
    """Return what the figures were measured on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {"device": name or "cpu", "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
