import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.wire import AdaptiveClip, Clip
from tests.wire.updates import flat, same_bits, update

KEY = jax.random.key(0)


@pytest.mark.parametrize("norm", [0.1, 3.0, 50.0])
def test_clip_shortens_the_whole_update(norm):
    up = update()
    length = np.linalg.norm(flat(up))
    sent = Clip(norm).send(up, (), (), KEY).up
    np.testing.assert_allclose(flat(sent), flat(up) * min(1, norm / length), rtol=1e-5)


def test_what_is_within_the_norm_is_untouched():
    up = update() | {"zero": jnp.asarray(-0.0)}
    for norm in (1e4, math.inf):
        same_bits(Clip(norm).send(up, (), (), KEY).up, up)
    for odd in (jnp.nan, jnp.inf):
        same_bits(Clip(math.inf).send({"x": jnp.asarray([1.0, odd])}, (), (), KEY).up, {"x": jnp.asarray([1.0, odd])})


def test_the_norm_of_half_precision_does_not_overflow():
    up = {"x": jnp.full(1000, 300, jnp.float16)}
    np.testing.assert_allclose(flat(Clip(10.0).send(up, (), (), KEY).up), 10 / math.sqrt(1000), rtol=1e-3)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_adaptive_norm_converges_to_the_quantile(quantile):
    clip = AdaptiveClip(initial=0.01, quantile=quantile, rate=0.2)
    lengths = np.random.default_rng(0).lognormal(size=400).astype(np.float32)

    @jax.jit
    def move(norm, _):
        bits = jax.vmap(lambda length: clip.send({"x": length[None]}, clip.announce(norm), (), KEY).note)(lengths)
        return clip.receive(norm, (), jnp.mean(bits), 400, KEY)[1], None

    norm, _ = jax.lax.scan(move, clip.init_server(()), length=300)
    assert np.mean(lengths <= norm) == pytest.approx(quantile, abs=0.01)


def test_adaptive_norm_moves_as_the_paper_says():
    clip = AdaptiveClip(initial=2.0, quantile=0.3, rate=0.5)
    sent = clip.send({"x": jnp.asarray([3.0, 4.0])}, jnp.asarray(2.0), (), KEY)
    np.testing.assert_allclose(sent.up["x"], [1.2, 1.6], rtol=1e-6)
    assert sent.note == 0
    assert clip.send({"x": jnp.asarray([1.0])}, jnp.asarray(2.0), (), KEY).note == 1
    _, norm = clip.receive(clip.init_server(()), (), jnp.asarray(0.75), 4, KEY)
    np.testing.assert_allclose(norm, 2 * math.exp(-0.5 * (0.75 - 0.3)), rtol=1e-6)


@pytest.mark.parametrize("bit_noise", [None, 3.0])
def test_update_and_bits_together_cost_what_the_multiplier_costs(bit_noise):
    on_update, on_bits = AdaptiveClip(1.0, bit_noise=bit_noise).share_noise(1.7)
    assert on_update**-2 + (2 * on_bits) ** -2 == pytest.approx(1.7**-2)
    assert bit_noise is None or on_bits == bit_noise


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Clip(0.0), "clip = 0.0 is not above 0"),
        (lambda: Clip(-math.inf), "clip"),
        (lambda: Clip(math.nan), "clip"),
        (lambda: AdaptiveClip(math.inf), "initial"),
        (lambda: AdaptiveClip(1.0, quantile=1.5), "quantile"),
        (lambda: AdaptiveClip(1.0, rate=0), "rate"),
        (lambda: AdaptiveClip(1.0, bit_noise=0), "bit_noise"),
        (lambda: AdaptiveClip(1.0, bit_noise=0.4).share_noise(0.8), "bit_noise = 0.4 is too little.*more than 0.4"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
