"""JAX's random numbers, to the bit, computed without a loop.

On a CPU JAX hashes by a loop of five turns, so that programs compile fast. Each turn is some twenty kernels, and a
local step derives and uses eight keys: 800 kernels for a few numbers, where a small model's step has a hundred. Here a
hash is straight-line code, of which the compiler makes one kernel.
"""

from math import prod

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend import random

__all__ = ["without_loops"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
WORD = 32
THREEFRY = "threefry2x32"


def _hash(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) of counters of two words."""
    words = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY)
    x, y = high + words[0], low + words[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            x = x + y
            y = (lax.shift_left(y, jnp.uint32(rotation)) | lax.shift_right_logical(y, jnp.uint32(WORD - rotation))) ^ x
        x, y = x + words[(turn + 1) % 3], y + words[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return x, y


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Two words for every entry of an array."""
    low = lax.iota(jnp.uint32, prod(shape)).reshape(shape)
    return _hash(key, jnp.zeros_like(low), low)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_counted(key, shape), axis=-1)


def _fold_in(key: Array, data: Array | int) -> Array:
    low = jnp.asarray(data).astype(jnp.uint32)
    return jnp.stack(_hash(key, jnp.zeros_like(low), low))


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    if bit_width == 2 * WORD:
        high, low = _counted(key, shape)
        return lax.shift_left(high.astype(jnp.uint64), jnp.uint64(WORD)) | low.astype(jnp.uint64)
    # `high ^ low`, as a reduction over windows of two: XLA does not fuse that with what uses it. A plain one it does,
    # and a hash is then computed again for every entry of every array that the numbers meet.
    words, each = _split(key, shape), (1,) * len(shape)
    bits = lax.reduce_window(words, jnp.uint32(0), lax.bitwise_xor, (*each, 2), (*each, 2), "VALID")
    return bits.reshape(shape).astype(f"uint{bit_width}")


IMPLEMENTATION = random.define_prng_impl(
    key_shape=(2,), seed=lambda seed: jax.random.key_data(jax.random.key(seed, impl=THREEFRY)), split=_split,
    random_bits=_random_bits, fold_in=_fold_in, name="headstart_threefry2x32", tag="hs",
)  # fmt: skip


def without_loops(key: Array) -> Array:
    """The key such that all that is drawn from it is the same, but computed in straight-line code on a CPU.

    A key of another generator is left as it is, and so are all where JAX is told to draw in its older order.
    """
    if (
        jax.default_backend() != "cpu"
        or not jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
        or str(jax.random.key_impl(key)) != THREEFRY
    ):
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=IMPLEMENTATION)
