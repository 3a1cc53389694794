"""Keys of DeepSpeed: part of the fingerprint unless they change nothing, or refused."""

import inspect
import re

import pytest
import yaml
from omegaconf import OmegaConf

from model.config import OptimizerConfig, TrainConfig, deepspeed_keys
from pipeline.cli import conf_files
from pipeline.errors import ConfigError
from pipeline.records.manifest import Result
from pipeline.stages import fingerprints, stage
from tests.support.refusals import refused
from tests.support.runs import configured


def composed(tmp_path, *words):
    return configured("train", f"workdir={tmp_path}", f"out={tmp_path / 'out'}", "tracking=none", *words)


def fingerprint(tmp_path, *words):
    return fingerprints.fingerprint("train", composed(tmp_path, *words))[0]


@pytest.mark.parametrize("path", (conf_files.CONF / "deepspeed").glob("*.yaml"), ids=str)
def test_choices_of_deepspeed_change_no_output(path):
    assert deepspeed_keys.output_keys(yaml.safe_load(path.read_text())) == {}


FITTING = "deepspeed=zero3 +zero_optimization.sub_group_size=5 +aio.queue_depth=1 +gradient_clipping=1"
FITTING += " +zero_optimization.round_robin_gradients=false +wall_clock_breakdown=true"


@pytest.mark.parametrize("word", FITTING.replace("+", "+deepspeed.").split())
def test_what_changes_nothing_leaves_the_fingerprint(tmp_path, word):
    assert fingerprint(tmp_path, word) == fingerprint(tmp_path)


UNFIT = "communication_data_type=bf16 data_types.grad_accum_dtype=bf16 prescale_gradients=true fp16.loss_scale=128"
UNFIT += " zero_optimization.zero_quantized_gradients=true"


@pytest.mark.parametrize("word", UNFIT.split())
def test_what_may_change_the_output_is_part_of_the_fingerprint(tmp_path, word):
    assert fingerprint(tmp_path, f"+deepspeed.{word}") != fingerprint(tmp_path)


def test_an_output_is_not_up_to_date_without_a_key_that_made_it(tmp_path):
    made = composed(tmp_path, "+deepspeed.prescale_gradients=true", "deepspeed=zero2")
    stage.run("train", made, lambda *_: Result(summary="", figures={}))
    now = made, composed(tmp_path, *KEY, "deepspeed=zero1"), composed(tmp_path)
    found = [fingerprints.recognise("train", each, *fingerprints.fingerprint("train", each)) for each in now]
    assert [each is not None for each in found] == [True, True, False]
    assert fingerprints.changes({"deepspeed": {"prescale_gradients": True}}, composed(tmp_path))


def test_every_key_that_deepspeed_reads_is_known():
    """Of DeepSpeed's own schemas, and of the names that it looks up in a configuration; or refused for a reason."""
    from deepspeed.runtime import config, precision_config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    looked_up = re.findall(r"get_\w*param\(\s*\w+,\s*([A-Z_0-9]+)", inspect.getsource(config))
    top = {name for each in looked_up if isinstance(name := getattr(config, each), str)}
    schemas = {
        "zero_optimization": DeepSpeedZeroConfig,
        "fp16": precision_config.DeepSpeedFP16Config,
        "bf16": precision_config.DeepSpeedBF16Config,
    }
    known = {key for names in deepspeed_keys.keys().values() for key in names}
    inner = {f"{name}.{field}" for name, schema in schemas.items() for field in schema.model_fields}
    assert len(top) > 15
    assert {name for name in inner if not any(f"{name}.".startswith(f"{key}.") for key in known)} == {
        "zero_optimization.offload_optimizer",
        "zero_optimization.cpu_offload_param",
        "zero_optimization.cpu_offload_use_pin_memory",
    }
    assert top - {key.partition(".")[0] for key in known} == {"use_data_before_expert_parallelism"}


KEY = ("+deepspeed.prescale_gradients=true",)


OURS = "gradient_clipping=0.5 bf16.enabled=true fp16.enabled=true fp16=true bfloat16.enabled=true optimizer.type=Adam"
OURS += " torch_autocast.enabled=true bf16.check_grad_overflow=false bf16.bf16_master_weights_and_grads=true"
OURS += " scheduler.type=WarmupLR sequence_parallel_size=2 zero_optimization=2"
OURS += " zero_optimization.round_robin_gradients=true zero_optimization.compute_grad_norm=false"
OURS += " zero_optimization.zero_hpz_partition_size=2 zero_optimization.parameter_alignment=true"


@pytest.mark.parametrize("word", OURS.split())
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_what_contradicts_or_hides_state_is_refused(word, optimizer):
    typed = OmegaConf.to_container(OmegaConf.from_dotlist([word]))
    with refused(ConfigError, key=f"deepspeed.{word.partition('=')[0]}") as raised:
        TrainConfig(out="out", optimizer=OptimizerConfig(name=optimizer), deepspeed=typed)
    assert "=" in str(raised.value).partition(":")[0]
