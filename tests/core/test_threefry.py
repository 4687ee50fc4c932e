"""Numbers drawn without loops are JAX's own, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core.threefry import without_loops

DRAWS = {
    "uniform": lambda key: jax.random.uniform(key, (3, 5)),
    "normal": lambda key: jax.random.normal(key, (7,)),
    "whole numbers": lambda key: jax.random.randint(key, (4, 2), -3, 1000),
    "a scalar": lambda key: jax.random.bits(key),
    "nothing": lambda key: jax.random.uniform(key, (0, 2)),
    "bytes": lambda key: jax.random.bits(key, (9,), jnp.uint8),
    "half words": lambda key: jax.random.bits(key, (9,), jnp.uint16),
    "an order": lambda key: jax.random.permutation(key, 11),
    "of split keys": lambda key: jax.vmap(jax.random.uniform)(jax.random.split(key, (2, 3)).reshape(-1)),
    "of folded keys": lambda key: jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i), (2,)))(jnp.arange(4)),
}


@jax.jit
def drawn(key: jax.Array) -> dict[str, jax.Array]:
    return {name: draw(key) for name, draw in DRAWS.items()}


def test_the_same_bits() -> None:
    key = jax.random.fold_in(jax.random.key(2**40 + 7), 3)
    ours = without_loops(key)
    assert jax.random.key_impl(ours) != jax.random.key_impl(key)
    jax.tree.map(np.testing.assert_array_equal, drawn(ours), drawn(key))


@pytest.mark.usefixtures("x64")
def test_the_same_bits_in_double_precision() -> None:
    key = jax.random.key(5)
    for draw in (jax.random.normal, jax.random.bits):
        np.testing.assert_array_equal(draw(without_loops(key), (6,)), draw(key, (6,)))


def test_other_generators_are_left_alone() -> None:
    key = jax.random.key(0, impl="rbg")
    assert without_loops(key) is key
    ours = without_loops(jax.random.key(0))
    assert without_loops(ours) is ours


def test_there_is_no_loop() -> None:
    def drawn(key: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, 1), (3,))

    key = jax.random.key(0)
    assert " while(" in jax.jit(drawn).lower(key).compile().as_text()
    assert " while(" not in jax.jit(drawn).lower(without_loops(key)).compile().as_text()
