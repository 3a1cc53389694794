"""What keys of DeepSpeed that are passed through may change: nothing, the output, or too much."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.common.tables import read_table
from pipeline.console.formatting import flatten
from pipeline.errors import ConfigError, named
from pipeline.storage.strict_json import Json


def keys() -> Json:
    """Return what each key of DeepSpeed is to us."""
    return dict(read_table(__file__, "deepspeed_keys.yaml"))


def _among(key: str, names: Any) -> str | None:
    """Return the one of `names` that is a key or contains it."""
    return next((name for name in names if f"{key}.".startswith(f"{name}.")), None)


def output_keys(typed: Mapping[str, Any]) -> Json:
    """Return what may change the output, by dotted key."""
    without = [key for kind, names in keys().items() for key in names if kind != "output"]
    return {key: value for key, value in flatten(typed) if _among(key, without) is None}


def derive_keys(precision: str, clip: float | None) -> Json:
    """Return the keys that follow from ours, whatever the ranks."""
    kinds = {kind: {"enabled": precision == kind} for kind in ("bf16", "fp16")}
    return {"gradient_clipping": clip or 0.0, **kinds}


def check(typed: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse what is not supported, or contradicts the keys that follow from ours.

    Raises:
        ConfigError: There is such a key.
    """
    ours_of, unsupported = keys()["ours"], keys()["unsupported"]
    listed, required = [key for names in keys().values() for key in names], dict(flatten(ours)) | keys()["fixed"]
    for key, value in flatten(typed):
        name = _among(key, unsupported)
        inner = next((each for each in listed if each.startswith(f"{key}.")), None)
        if inner is not None:
            problem = f"has keys of its own; set one of these, as deepspeed.{inner}="
        elif name is not None:
            cure = re.sub(r"<([\w.]+)>", lambda match: named(match[1]), unsupported[name])
            problem = f"not supported; {cure}"
        elif _among(key, listed) is None:
            place, _, last = key.rpartition(".")
            near = [each.removeprefix(f"{place}.") for each in listed if each.startswith(f"{place}.")]
            raise no_such_key(*((f"deepspeed.{place}", last, near) if near else ("deepspeed", key, listed)), value)
        elif key not in required or value == required[key]:
            continue
        elif key in ours_of:
            problem = f"contradicts {ours_of[key]}; remove it and set {named(ours_of[key])}="
        else:
            problem = "not supported, as it lays out or checks state in another way; remove it"
        raise ConfigError(problem, f"deepspeed.{key}", value)


def no_such_key(prefix: str, name: str, names: Sequence[str], value: object) -> ConfigError:
    """Return the error for a key that DeepSpeed lacks, or training has no use for, with the closest one."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4 if "." in prefix else 0.6)
    meant = f"; did you mean {prefix}.{near[0]}?" if near else ""
    return ConfigError(f"no key of DeepSpeed that training uses{meant}", f"{prefix}.{name}", value)
