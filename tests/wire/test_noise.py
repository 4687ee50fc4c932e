import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.wire import AdaptiveClip, Clip, GaussianMechanism, Noise
from tests.wire.updates import flat, same_bits, update

SIZE = 20_000
NOTHING = {"x": jnp.zeros(SIZE), "y": jnp.zeros((SIZE // 2, 2), jnp.bfloat16)}


def deviations(tree):
    return [np.std(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]


def test_central_noise_is_on_the_sum():
    part = GaussianMechanism(Clip(3.0), Noise(0.8))
    sent = part.send(NOTHING, (), (), jax.random.key(0))
    assert not flat(sent.up).any()
    mean, _ = part.receive((), sent.up, sent.note, 10, jax.random.key(1))
    np.testing.assert_allclose(deviations(mean), 0.8 * 3.0 / 10, rtol=0.02)
    assert np.mean(flat(mean)) == pytest.approx(0, abs=0.01)


def test_local_noise_is_on_every_update():
    part = GaussianMechanism(Clip(3.0), Noise(0.8, "client"))
    first, second = (part.send(NOTHING, (), (), jax.random.key(i)).up for i in range(2))
    np.testing.assert_allclose(deviations(first), 0.8 * 3.0, rtol=0.02)
    # Leaves and clients draw for themselves.
    x, y = np.asarray(first["x"]), np.asarray(first["y"], np.float32).ravel()
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.03
    assert abs(np.corrcoef(x, np.asarray(second["x"]))[0, 1]) < 0.03
    same_bits(part.receive((), first, (), 10, jax.random.key(1))[0], first)


@pytest.mark.parametrize("at", ["server", "client"])
def test_noise_follows_an_adaptive_norm_and_covers_the_bits(at):
    clip = AdaptiveClip(1.0, rate=1.0, bit_noise=2.0)
    part = GaussianMechanism(clip, Noise(1.0, at))
    on_update = (1.0**-2 - (2 * 2.0) ** -2) ** -0.5
    norm = jnp.asarray(5.0)
    keys = jax.random.split(jax.random.key(0), 2000)
    if at == "client":
        sent = jax.vmap(lambda key: part.send({"x": jnp.zeros(10)}, norm, (), key))(keys)
        assert np.std(sent.up["x"]) == pytest.approx(on_update * 5.0, rel=0.02)
        assert np.std(sent.note) == pytest.approx(2.0, rel=0.05)
        assert np.mean(sent.note) == pytest.approx(1.0, abs=0.15)
    else:
        mean, moved = jax.vmap(lambda key: part.receive(norm, {"x": jnp.zeros(10)}, jnp.ones(()), 8, key))(keys)
        assert np.std(mean["x"]) == pytest.approx(on_update * 5.0 / 8, rel=0.02)
        bits = clip.quantile - np.log(np.asarray(moved) / 5.0)
        assert np.std(bits) == pytest.approx(2.0 / 8, rel=0.05)
        assert np.mean(bits) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("at", ["server", "client"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_no_noise_and_no_clip_is_nothing_to_the_bit(at, dtype):
    up = update(0, dtype) | {"zero": jnp.asarray(-0.0, dtype)}

    @jax.jit
    def there(part, up):
        sent = part.send(up, (), (), jax.random.key(0))
        return sent.up, part.receive((), sent.up, sent.note, 3, jax.random.key(1))[0]

    for part in (GaussianMechanism(Clip(math.inf), Noise(0.0, at)), GaussianMechanism(Clip(1e6), Noise(0.0, at))):
        for result in there(part, up):
            same_bits(result, up)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Noise(-1.0), "multiplier = -1.0"),
        (lambda: Noise(math.inf), "multiplier"),
        (lambda: Noise(1.0, "cloud"), "at = 'cloud'.*'server' or 'client'"),
        (lambda: GaussianMechanism(Clip(math.inf), Noise(1.0)), "noise needs a finite clip"),
        (lambda: GaussianMechanism(AdaptiveClip(1.0, bit_noise=0.1), Noise(1.0)), "bit_noise = 0.1"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
