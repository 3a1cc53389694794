"""Environment variables that the launcher sends to the ranks on other hosts."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.common.errors import ConfigError

# Prefixes of the variables that are always sent.
ALONG = (
    "NCCL_",
    "GLOO_",
    "UCX_",
    "FI_",
    "OMP_",
    "MKL_",
    "KMP_",
    "TORCH_",
    "PYTORCH_",
    "WANDB_",
    "HF_",
    "DS_",
    "DEEPSPEED_",
    "PYTHONHASHSEED",
    "CUDA_LAUNCH",
    "CUDA_DEVICE_MAX",
    "AWS_",
    "GOOGLE_",
    "AZURE_",
)


def along(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to send to the ranks on other hosts.

    Those of DeepSpeed's file `.deepspeed_env`, in the home folder and in the working directory,
    are added.

    Raises:
        ConfigError: A line of a file is not KEY=VALUE.
    """
    sent = {key: value for key, value in environment.items() if key.startswith(ALONG)}
    for folder in (Path.home(), Path.cwd()):
        path = folder / environment.get("DS_ENV_FILE", ".deepspeed_env")
        if path.is_file():
            sent |= _read(path)
    return sent


def _read(path: Path) -> dict[str, str]:
    """Read a file of KEY=VALUE lines, whose values are taken as they are, without a shell."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ConfigError("must be KEY=VALUE", path=path, line=number)
        found[key.strip()] = value.strip()
    return found
