"""The dynamic loss scale continues where it was."""

from deepspeed import comm
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

from model.training.engine import restore_scale, scale_of


def scaler():
    return DynamicLossScaler(
        init_scale=2**16,
        scale_window=4,
        min_scale=1,
        delayed_shift=2,
        consecutive_hysteresis=False,
        raise_error_at_min_scale=False,
    )


def test_a_resumed_scale_changes_when_an_undisturbed_one_does(monkeypatch):
    monkeypatch.setattr(comm, "get_rank", lambda: 1)  # asked before a line is logged
    overflows = [True, True, True, False, False, True, False, False, False, False, False, True]
    undisturbed = scaler()
    for step, overflow in enumerate(overflows):
        resumed = scaler()
        restore_scale(resumed, scale_of(undisturbed))
        for later in overflows[step:]:
            resumed.update_scale(later)
        undisturbed.update_scale(overflow)
        if step == 0:
            final = scale_of(resumed)
        assert scale_of(resumed) == final
    assert scale_of(undisturbed) == final
    assert final["cur_scale"] != 2**16
