"""The GPUs that a scheduler promised: refuse to compute on the CPU where they cannot be used."""

import os

from pipeline.common.errors import ConfigError

PROMISED = "GPUS"  # environment: the GPUs of this node, by k8s/pretrain.yaml or deploy/slurm.sh
OLDEST_DRIVER = {"12": "525", "13": "580"}  # of NVIDIA, for each major version of CUDA


def require_gpus() -> None:
    """Check that as many GPUs are usable as the environment promises; without GPUS, do nothing.

    Raises:
        ConfigError: PyTorch can use fewer.
    """
    promised = os.environ.get(PROMISED, "")
    if not promised.isdecimal() or int(promised) == 0:
        return
    import torch  # seconds, which a command without GPUS need not wait here

    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable < int(promised):
        raise ConfigError(
            f"{PROMISED}={promised}: PyTorch {torch.__version__} can use {usable}: {reason()}; "
            f"{advice()}",
            key=PROMISED,
        )


def reason() -> str:
    """Return what PyTorch says when it is made to use a GPU."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split()).rstrip(".")
    return "the others are not visible to this process"


def advice() -> str:
    """Return what to change, with the driver that this build of PyTorch needs."""
    import torch

    version = torch.version.cuda
    if version is None:
        return "use an image or a wheel of PyTorch that is built with CUDA"
    driver = OLDEST_DRIVER.get(version.partition(".")[0])
    needed = f"version {driver} or newer of NVIDIA's driver" if driver else "a newer NVIDIA driver"
    return f"CUDA {version} needs {needed} on the node, and on Kubernetes its device plugin"
