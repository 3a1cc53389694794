"""Schemas of what is learnt and how: objective, optimizer, schedule."""

from dataclasses import dataclass
from typing import Any

from pipeline.common.schema import Section, check, option
from pipeline.errors import named


@dataclass(kw_only=True)
class ObjectiveConfig(Section, key="objective"):
    """What is predicted: Devlin et al. 2019, section 3.1."""

    _of_masks = ("mask_share", "mask_token_share", "random_token_share", "whole_word", "span")
    _only = dict.fromkeys(_of_masks, ("predict", "masked")) | {"span_stop": ("span",), "pairs": ("next_sentence", True)}

    name: str = option(help="Name of the objective.")
    predict: str = option(
        "masked", "Tokens to predict: masked ones, or the next one from those before it.", choices=("masked", "next")
    )
    next_sentence: bool = option(True, "Add the loss of sentence pairs to that of tokens.")
    pairs: str = option("nsp", "Which pairs it classifies, as `prepare` made them.", choices=("nsp", "sop"))
    mask_share: Any = option(
        0.15,
        "Share of tokens to predict; a list, as [0.3,0.15]: from the first step to the last, "
        "linear between its values. Held-out samples have the last.",
        above=0,
        below=1,
    )
    mask_token_share: float = option(0.8, "Share of these that is replaced by [MASK].", at_least=0, at_most=1)
    random_token_share: float = option(
        0.1, "Share of these that is replaced by random tokens; the rest is kept.", at_least=0, at_most=1
    )
    whole_word: bool = option(False, "Mask all tokens of a word, or none.")
    span: int = option(1, "Largest number of tokens, or whole words, masked in a row.", at_least=1)
    span_stop: float = option(0.2, "Probability that a run ends after each of them.", above=0, at_most=1)

    def __post_init__(self) -> None:
        """Check the shares."""
        several = isinstance(self.mask_share, list) and len(self.mask_share) > 1 and all(map(is_share, self.mask_share))
        self.require(several or is_share(self.mask_share), "must be a number, or a list of two or more", "mask_share")
        super().__post_init__()
        shares = (self.mask_token_share, self.random_token_share)
        check(
            sum(shares) <= 1,
            "must be at most 1 together",
            "objective.mask_token_share",
            f"{shares[0]}, objective.random_token_share={shares[1]}",
        )

    @property
    def mask_shares(self) -> list[float]:
        """Return the shares between which the run moves: one, or two and more.

        Each token predicts the next one with predict=next: all of them.
        """
        if self.predict == "next":
            return [1.0]
        return list(self.mask_share) if isinstance(self.mask_share, list) else [self.mask_share]


def is_share(value: Any) -> bool:
    """Return whether a value is a number, of whatever size."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(kw_only=True)
class OptimizerConfig(Section, key="optimizer"):
    """Adam with decoupled weight decay, plain or with clipped updates, LAMB, or Muon.

    Biases and layer norms have no decay.
    """

    _only = dict.fromkeys(("momentum", "adam_share"), ("name", "muon"))

    name: str = option(help="Optimizer.", choices=("adamw", "lamb", "stable_adamw", "muon"))
    learning_rate: float = option(1e-4, "Learning rate at the peak of the schedule.", above=0)
    betas: list[float] = option([0.9, 0.999], "Decay rates of both moments.", at_least=0, below=1)
    epsilon: float = option(1e-6, "Term added to the denominator.", above=0)
    weight_decay: float = option(0.01, "Weight decay.", at_least=0)
    momentum: float = option(0.95, "Decay rate of the momentum of hidden matrices (muon).", at_least=0, below=1)
    adam_share: float = option(
        0.015,
        "Learning rate of what AdamW updates (embeddings, heads, vectors), as a share of that of "
        "hidden matrices (muon).",
        above=0,
    )

    def check_rules(self) -> None:
        """Check the number of betas."""
        self.require(len(self.betas) == 2, "must be two numbers", "betas")


@dataclass(kw_only=True)
class ScheduleConfig(Section, key="schedule"):
    """The learning rate over the steps, as a share of the peak, and the batch size.

    Warm-up, then decay to `final_share`. A run may be a part of a longer schedule: the second of
    two phases begins at `first_step` where the first one ended, of `total_steps` of both.
    """

    _only = dict.fromkeys(("decay", "decay_share"), ("name", "wsd")) | {
        "power": [("name", "polynomial", "wsd"), ("decay", "power")],
        "final_share": ("name", "linear", "polynomial", "cosine", "wsd"),
        "batch_share": ("first_batch",),
        "warmup_share": ("warmup_steps", None),
    }
    _yields = dict.fromkeys(["warmup_steps"], ("warmup_share",))

    name: str = option(help="Schedule.", choices=("linear", "polynomial", "constant", "cosine", "wsd"))
    warmup_share: float = option(0.01, "Share of all steps for warm-up.", at_least=0, at_most=1)
    warmup_steps: int | None = option(None, "Steps of warm-up; null: warmup_share of all steps.", at_least=0)
    final_share: float = option(0.0, "Share of the peak rate that is left at the end.", at_least=0, at_most=1)
    power: float = option(1.0, "Exponent of the remaining share of steps: polynomial and wsd.", above=0)
    decay_share: float = option(0.1, "Share of all steps, the last ones, in which wsd decays.", at_least=0, at_most=1)
    decay: str = option(
        "power",
        "Decay of wsd: by `power`, or sqrt: one minus the root of the share that is done.",
        choices=("power", "sqrt"),
    )
    first_step: int = option(0, "Step of the schedule at which this run begins.", at_least=0)
    total_steps: int | None = option(None, "Steps of the schedule; null: it ends with this run.")
    first_batch: int | None = option(None, "Samples of the first step; null: batch_size.", at_least=1)
    batch_share: float = option(
        0.1, "Share of all steps, the first ones, in which the batch grows to batch_size.", at_least=0, at_most=1
    )

    spread_steps: int | None = option(
        None, "Steps, the first ones, that shares for warm-up, batch and masks are of; null: all.", at_least=1
    )

    def check_steps(self, steps: int | None, batch_size: int) -> None:
        """Check that a run of `steps` updates fits into the schedule; None: not known yet."""
        for key, off in ({} if steps else {"first_step": "0", "total_steps": "null", "first_batch": "null"}).items():
            self.require(not getattr(self, key), f"goes with {named('steps')}; here it must be {off}", key)
        end = self.first_step + (steps or 0)
        if steps and (self.total_steps or end) <= (self.spread_steps or 0):
            self.spread_steps = None  # the same steps have the same settings
        self.require(
            self.total_steps is None or end <= self.total_steps,
            f"must be at least {end}, as steps={steps} follow schedule.first_step={self.first_step}",
            "total_steps",
        )
        self.require((self.first_batch or 1) <= batch_size, f"must be at most batch_size={batch_size}", "first_batch")
