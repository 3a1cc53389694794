"""Check of the announced GPUs: training must not silently fall back to the CPU."""

import os

from pipeline.common.errors import ConfigError

PROMISED = "GPUS"  # environment: GPUs of this node, set by k8s/pretrain.yaml or deploy/slurm.sh
OLDEST_DRIVER = {"12": "525", "13": "580"}  # NVIDIA driver for each major version of CUDA


def require_gpus() -> None:
    """Check that PyTorch can use the GPUs that the environment variable GPUS announces, if set."""
    promised = os.environ.get(PROMISED, "")
    if not promised.isdecimal() or int(promised) == 0:
        return
    import torch  # takes seconds: not for commands without GPUS

    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable < int(promised):
        raise ConfigError(
            f"{PROMISED}={promised}: PyTorch {torch.__version__} can use only {usable} "
            f"({reason()}); {advice()}",
            key=PROMISED,
        )


def reason() -> str:
    """Return PyTorch's error when it initialises CUDA."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split()).rstrip(".")
    return "the others are not visible to this process"


def advice() -> str:
    """Return what to change, with the driver version that this build of PyTorch needs."""
    import torch

    version = torch.version.cuda
    if version is None:
        return "use an image or a PyTorch wheel built with CUDA"
    driver = OLDEST_DRIVER.get(version.partition(".")[0])
    needed = f"NVIDIA driver {driver} or newer" if driver else "a newer NVIDIA driver"
    return f"CUDA {version} needs {needed} on the node; on Kubernetes, also NVIDIA's device plugin"
