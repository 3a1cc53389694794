"""Schema of the encoder's size."""

from dataclasses import dataclass, replace

from model.config.architectures import ARCHITECTURES, Traits
from pipeline.common.schema import Section, option
from pipeline.errors import ConfigError
from pipeline.tokenization.known_models import ACTIVATIONS

# Layers, hidden size, heads and feed-forward size of the published models (as in conf/model).
PUBLISHED = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}
SHAPE = ("layers", "hidden", "heads", "feed_forward")
AUTO = "auto"  # the name of a size whose zeros are still to be filled


@dataclass(kw_only=True)
class ModelConfig(Section, key="model"):
    """The encoder's size: Devlin et al. 2019, section 3; Turc et al. 2019 for the small ones.

    The help texts name the keys that only ModernBERT (Warner et al. 2024) reads.
    """

    _only = dict.fromkeys(
        ("local_window", "global_every", "rotary_local", "rotary_global", "classifier_pooling"),
        ("architecture", "modernbert"),
    )

    name: str = option(help="Name of the size.")
    architecture: str = option("bert", "Architecture.", choices=tuple(ARCHITECTURES))
    layers: int = option(help="Layers; 0: as the model in `start`, or as base.", at_least=0)
    hidden: int = option(help="Size of a token's vector; 0: as for layers.", at_least=0)
    heads: int = option(help="Attention heads per layer; 0: as for layers.", at_least=0)
    feed_forward: int = option(help="Width of the feed-forward part; 0: as for layers.", at_least=0)
    positions: int = option(512, "Longest sequence; 0: as in `start`, or that of the data if longer.", at_least=0)
    vocab_size: int | None = option(None, "Entries of the vocabulary; null: the tokenizer's.")
    dropout: float = option(0.1, "Dropout of hidden vectors.", at_least=0, below=1)
    attention_dropout: float = option(0.1, "Dropout of attention weights.", at_least=0, below=1)
    initializer_range: float = option(0.02, "Standard deviation of initial weights.", above=0)
    activation: str = option("gelu", "Activation, by transformers' name.", choices=tuple(ACTIVATIONS))
    layer_norm_epsilon: float = option(1e-12, "Epsilon of layer norms.", above=0)
    attention: str = option(
        "auto", "Attention implementation: each, padded or flash; auto: the fastest one supported here."
    )
    causal: bool = option(False, "Let each token attend only to those before it.")
    local_window: int = option(
        128, "modernbert: tokens on both sides together that a token of a local layer attends to.", at_least=2
    )
    global_every: int = option(
        3, "modernbert: layers from one that attends to whole sequences to the next.", at_least=1
    )
    rotary_local: float = option(10_000.0, "modernbert: base of the rotary positions in local layers.", above=0)
    rotary_global: float = option(160_000.0, "modernbert: base of the rotary positions in the other layers.", above=0)
    classifier_pooling: str = option("cls", "modernbert: what fine-tuned heads read.", choices=("cls", "mean"))

    def check_rules(self) -> None:
        """Check what fits what."""
        for key in SHAPE:
            self.require(self.name == AUTO or getattr(self, key) >= 1, "must be at least 1", key)
        self.require(
            0 in (self.hidden, self.heads) or self.hidden % self.heads == 0,
            f"must divide model.hidden={self.hidden}",
            "heads",
        )
        if not self.traits.learned_positions and self.heads:
            self.require(not self.causal, f"cannot be combined with {self.architecture}; use bert", "causal")
            self.require(
                self.hidden // self.heads % 2 == 0,
                f"rotary positions need heads of an even width, not {self.hidden // self.heads}",
                "heads",
            )

    @property
    def traits(self) -> Traits:
        """Return what the architecture can do and costs."""
        return ARCHITECTURES[self.architecture]

    @property
    def entries(self) -> int:
        """Return the entries of the vocabulary, where they are known."""
        if self.vocab_size is None:
            raise ConfigError("is required; set it to the tokenizer's size", "model.vocab_size")
        return self.vocab_size

    @property
    def size_name(self) -> str:
        """Return the name of the size; a published name only if the sizes agree."""
        shape = tuple(getattr(self, key) for key in SHAPE)
        if self.name != AUTO and PUBLISHED.get(self.name, shape) == shape:
            return self.name
        names = (name for name, other in PUBLISHED.items() if other == shape)
        return next(names, f"{self.layers} x {self.hidden}")

    def filled(self, other: "ModelConfig") -> "ModelConfig":
        """Return this size with the values of `other` where it has zeros."""
        return replace(self, **{key: getattr(self, key) or getattr(other, key) for key in (*SHAPE, "positions")})
