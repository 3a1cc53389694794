"""Counter-based randomness: every draw is a function of a key and a position, without state.

The generator is the finalizer of SplitMix64 (Steele, Lea and Flood 2014, section 3), applied to
`key + position * golden`: a bijection of 64-bit words with full avalanche. A draw costs a few
vector operations and does not depend on the order of evaluation or the process that computes it.
"""

import hashlib

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(seed: int, purpose: str, *parts: int | str) -> np.uint64:
    """Return the 64-bit key of a seed and purpose; `parts` refine it (an epoch, a bucket name)."""
    text = "\x1f".join([str(seed), purpose, *map(str, parts)])
    return number_of(text)


def number_of(text: str) -> np.uint64:
    """Return a hash of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "big"))


def random_bits(key: np.uint64 | Bits, position: npt.ArrayLike) -> Bits:
    """Return random `uint64` in the broadcast shape of `key` and `position` (non-negative)."""
    with np.errstate(over="ignore"):
        z = np.asarray(position).astype(np.uint64)
        z = (z + np.uint64(1)) * _GOLDEN
        z = z + np.asarray(key)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.asarray(z)


def uniform(key: np.uint64 | Bits, position: npt.ArrayLike) -> Floats:
    """Draw from [0, 1) with 53 random bits."""
    return (random_bits(key, position) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(key: np.uint64 | Bits, position: npt.ArrayLike, high: npt.ArrayLike) -> Ints:
    """Draw integers from 0 .. high-1; the bias is below high / 2**53."""
    return below(uniform(key, position), high)


def below(drawn: Floats, high: npt.ArrayLike) -> Ints:
    """Return draws from [0, 1) as integers from 0 .. high-1."""
    return np.asarray(drawn * np.asarray(high), np.int64)


def binomial_half(key: Bits, n: Ints) -> Ints:
    """Count heads among `n` fair coin flips, per entry of `key` `(N,)` and `n` `(N,)`."""
    heads = np.zeros(n.shape, np.int64)
    for block in range(-(-int(n.max(initial=0)) // 64)):
        take = np.minimum(np.maximum(n - 64 * block, 0), 64)  # np.clip takes ten times as long for few
        mask = np.where(
            take == 64,
            np.uint64(0xFFFFFFFFFFFFFFFF),
            (np.uint64(1) << np.minimum(take, 63).astype(np.uint64)) - np.uint64(1),
        )
        heads += np.bitwise_count(random_bits(key, np.full(n.shape, block)) & mask).astype(np.int64)
    return heads


def permutation(key: np.uint64, n: int) -> Ints:
    """Return the keyed permutation of 0 .. n-1, `(n,)` int64."""
    return np.argsort(random_bits(key, np.arange(n)), kind="stable")
