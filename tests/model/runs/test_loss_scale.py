"""The dynamic loss scale continues where it was."""

from types import SimpleNamespace

from deepspeed import comm
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

from model.training import deepspeed_engine


def scaler():
    patience = {"scale_window": 4, "min_scale": 1, "delayed_shift": 2, "consecutive_hysteresis": False}
    return DynamicLossScaler(init_scale=2**16, raise_error_at_min_scale=False, **patience)


def test_a_resumed_scale_changes_when_an_undisturbed_one_does(monkeypatch):
    monkeypatch.setattr(comm, "get_rank", lambda: 1)  # asked before a line is logged
    overflows = [True, True, True, False, False, True, False, False, False, False, False, True]
    undisturbed = SimpleNamespace(loss_scaler=scaler())
    for step, overflow in enumerate(overflows):
        resumed = SimpleNamespace(loss_scaler=scaler())
        deepspeed_engine.restore_scale(resumed, deepspeed_engine.scale_of(undisturbed, "fp16"))
        for later in overflows[step:]:
            resumed.loss_scaler.update_scale(later)
        undisturbed.loss_scaler.update_scale(overflow)
        if step == 0:
            final = deepspeed_engine.scale_of(resumed, "fp16")
        assert deepspeed_engine.scale_of(resumed, "fp16") == final
    assert deepspeed_engine.scale_of(undisturbed, "fp16") == final
    assert final["cur_scale"] != 2**16


def test_other_precisions_have_none():
    assert deepspeed_engine.scale_of(SimpleNamespace(loss_scaler=scaler()), "bf16") == {}
