"""Check of the announced GPUs: training must not silently fall back to the CPU."""

import os
from typing import TYPE_CHECKING

from model.distributed.environment import PROMISED
from pipeline.common import cores
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    import torch

VISIBLE = "CUDA_VISIBLE_DEVICES"  # environment: the numbers of the GPUs that are ours
OLDEST_DRIVER = {"12": "525", "13": "580"}  # of NVIDIA, for each major version of CUDA


def require_gpus() -> None:
    """Check that as many GPUs are usable as the environment promises, or any where there are some.

    BERT_GPUS=0, or no visible device, means that the CPU is wanted.

    Raises:
        ConfigError: PyTorch can use fewer.
    """
    promised = os.environ.get(PROMISED, "")
    if not promised.isdecimal():
        refuse_old_driver()
        return
    if int(promised) == 0:
        return
    import torch  # takes seconds: not for commands without it

    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable < int(promised):
        visible = os.environ.get(VISIBLE)
        of = "" if visible is None else f" of {VISIBLE}={visible}"
        raise ConfigError(
            f"PyTorch {torch.__version__} can use only {usable}{of} ({reason()}); {how_to_use()}", PROMISED, promised
        )


def device_of_rank() -> "torch.device":
    """Return the device of this rank, by the launcher's variables, or those of a single rank.

    Raises:
        ConfigError: fewer GPUs are usable than the environment promises, or more ranks were started.
    """
    require_gpus()
    for key, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(key, value)
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank, usable = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local_rank >= usable:
        raise ConfigError(
            f"more ranks were started on this node than it has usable GPUs ({usable}); start {usable}, one for each",
            "processes",
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def refuse_old_driver() -> None:
    """Check that PyTorch can use GPUs where the node has a driver for them.

    Raises:
        ConfigError: it is built with CUDA and can use none.
    """
    if not cores.gpus_present() or os.environ.get(VISIBLE, "0") in ("", "-1"):
        return
    import torch

    if torch.version.cuda is not None and not torch.cuda.is_available():
        raise ConfigError(
            f"this node has NVIDIA's driver, but PyTorch {torch.__version__} can use no GPU: {reason()}; "
            f"{how_to_use()}; or set {PROMISED}=0 to compute on the CPU",
            PROMISED,
        )


def reason() -> str:
    """Return PyTorch's error when it initialises CUDA."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split()).rstrip(".")
    return "the others are not visible to this process"


def how_to_use() -> str:
    """Return what to change, with the driver version that this build of PyTorch needs."""
    import torch

    version = torch.version.cuda
    if version is None:
        return "use an image or a PyTorch wheel built with CUDA"
    driver = OLDEST_DRIVER.get(version.partition(".")[0])
    needed = f"NVIDIA driver {driver} or newer" if driver else "a newer NVIDIA driver"
    return f"CUDA {version} needs {needed} on the node; on Kubernetes, also NVIDIA's device plugin"
