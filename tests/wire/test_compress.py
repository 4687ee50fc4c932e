import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.wire import Compress, Quantize, TopK
from tests.wire.updates import flat, update

KEY = jax.random.key(0)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_quantisation_is_unbiased_and_within_a_step(bits):
    part = Compress((Quantize(bits),))
    x = {"x": jnp.asarray(np.random.default_rng(0).normal(size=50), jnp.float32)}
    draws = jax.vmap(lambda key: part.send(x, (), (), key).up["x"])(jax.random.split(KEY, 4000))
    step = np.max(np.abs(x["x"])) / (2 ** (bits - 1) - 1)
    assert np.max(np.abs(draws - x["x"])) <= step * (1 + 1e-5)
    # A rounding to either side of a step has at most half a step's deviation.
    assert np.max(np.abs(np.mean(draws, axis=0) - x["x"])) < 5 * step / 2 / math.sqrt(4000)
    levels = np.asarray(draws) / step
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-5 * 2**bits)


@pytest.mark.parametrize("bits", [2, 3, 7, 8, 11, 16])
def test_numbers_of_any_width_are_packed(bits):
    compression = Quantize(bits)
    codes = jnp.asarray([-compression.levels, -1, 0, 1, compression.levels] * 3, jnp.int32)
    side = {"codes": codes, "step": jnp.float32(1)}
    like = jax.ShapeDtypeStruct((15,), jnp.float32)
    packed = compression.pack(side, like)
    assert packed["codes"].dtype == jnp.uint8
    assert packed["codes"].nbytes == math.ceil(15 * bits / 8)
    np.testing.assert_array_equal(compression.unpack(packed, like)["codes"], codes)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_top_k_keeps_the_largest_of_each_leaf(share):
    up = update()
    sent = Compress((TopK(share, feedback=False),)).send(up, (), (), KEY).up
    for before, after in zip(jax.tree.leaves(up), jax.tree.leaves(sent), strict=True):
        before, after = np.asarray(before).ravel(), np.asarray(after).ravel()
        kept = min(before.size, max(1, math.ceil(share * before.size)))
        expected = np.zeros_like(before)
        largest = np.argsort(-np.abs(before))[:kept]
        expected[largest] = before[largest]
        np.testing.assert_array_equal(after, expected)


def test_bytes_by_hand():
    like = {"w": jax.ShapeDtypeStruct((10, 100), jnp.float32), "b": jax.ShapeDtypeStruct((), jnp.bfloat16)}
    before = 4002

    def after(*stages):
        return Compress(stages).payload_bytes(like, before)

    assert after(Quantize(8)) == 1000 + 4 + 1 + 4
    assert after(Quantize(3)) == 375 + 4 + 1 + 4
    # One bit per coordinate for 100 of 1000; four bytes each for 10 of 1000; a scalar has no place.
    assert after(TopK(0.1)) == 100 * 4 + 125 + 2
    assert after(TopK(0.01)) == 10 * 4 + 10 * 4 + 2
    assert after(TopK(0.1), Quantize(8)) == 100 + 4 + 125 + 1 + 4
    # What goes up beside the update stays.
    assert Compress((Quantize(8),)).payload_bytes(like, before + 4) == after(Quantize(8)) + 4


def test_feedback_keeps_what_was_lost():
    part = Compress((TopK(0.2), Quantize(4)))
    own, total_up, total_sent = part.init_client(update()), 0.0, 0.0
    for i in range(5):
        up = update(i)
        sent = part.send(up, (), own, jax.random.key(i))
        total_up, total_sent, own = total_up + flat(up), total_sent + flat(sent.up), sent.own
    np.testing.assert_allclose(total_sent + flat(own), total_up, rtol=1e-5, atol=1e-4)


def test_without_feedback_nothing_is_kept():
    part = Compress((TopK(0.2, feedback=False), Quantize(4)))
    assert part.init_client(update()) == ()
    assert part.send(update(), (), (), KEY).own == ()


def test_top_k_converges_with_feedback_only():
    """Four clients whose large gradients cancel: without feedback top-1 sends nothing but those.

    Client i's loss is ``|x - c_i|^2 / 2`` in three coordinates; the minimum is the mean of the ``c_i``.
    """
    centres = jnp.asarray([[10.0, 1.0, 1.0], [-10.0, 1.0, 1.0], [10.0, 1.0, 1.0], [-10.0, 1.0, 1.0]])

    def distance(feedback):
        part = Compress((TopK(0.3, feedback=feedback),))

        def step(carry, key):
            x, own = carry
            gradient = x - centres
            sent = jax.vmap(lambda g, o, k: part.send(g, (), o, k))(gradient, own, jax.random.split(key, 4))
            return (x - 0.05 * jnp.mean(sent.up, axis=0), sent.own), None

        own = jax.vmap(part.init_client)(centres)
        (x, _), _ = jax.lax.scan(step, (jnp.zeros(3), own), jax.random.split(KEY, 600))
        return float(jnp.linalg.norm(x - jnp.asarray([0.0, 1.0, 1.0])))

    assert distance(feedback=False) > 1.4
    assert distance(feedback=True) < 0.3


def test_nan_is_not_hidden():
    up = {"x": jnp.arange(10.0).at[3].set(jnp.nan)}
    for stage in (TopK(0.1), Quantize(8)):
        assert np.isnan(flat(Compress((stage,)).send(up, (), {"x": jnp.zeros(10)}, KEY).up)).any()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Quantize(1), "bits = 1"),
        (lambda: Quantize(17), "bits = 17 is above 16"),
        (lambda: TopK(0.0), "share = 0.0"),
        (lambda: TopK(0.1, feedback="no"), "feedback = 'no' is neither true nor false"),
        (lambda: Compress((Quantize(), TopK())), "'top-k' cannot follow 'quantize'.*Put 'quantize' last"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
