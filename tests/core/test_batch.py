import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import Keyed, KeyedSamples, Sides, Weighted, check_size, weighing
from headstart.errors import UsageError
from headstart.problems import Examples
from tests import toy


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "all", None])
def test_what_is_no_batch_size(size):
    with pytest.raises(UsageError, match=r"(?s)batch_size = .* is not a batch size.*'full'"):
        check_size("batch_size", size)


@pytest.mark.usefixtures("x64")
def test_weight_zero_leaves_a_sample_out_of_loss_and_gradient():
    (samples, _), *_ = toy.client_arrays()
    batch = Examples(*map(jnp.asarray, samples))
    spoilt = jax.tree.map(lambda a: jnp.concatenate([a, 100 * a[:2]]), batch)
    padded = Weighted(spoilt, jnp.asarray([1.0] * 5 + [0.0] * 2))
    loss = weighing(toy.logistic_loss)
    plain, weighted = (jax.value_and_grad(loss)(toy.start(), b) for b in (batch, padded))
    toy.assert_close(weighted, plain, 1e-14)


@pytest.mark.usefixtures("x64")
def test_weights_count_proportionally_in_every_metric():
    batch = Weighted(jnp.asarray([1.0, 2.0, 4.0]), jnp.asarray([1.0, 1.0, 2.0]))
    scores = weighing(lambda p, b: {"mean": jnp.mean(p * b), "square": jnp.mean(b**2)})(3.0, batch)
    np.testing.assert_allclose([scores["mean"], scores["square"]], [3 * 11 / 4, 37 / 4])


def test_whole_numbers_and_truth_values_have_a_mean():
    batch = Weighted(jnp.asarray([1.0, 2.0, 4.0]), jnp.asarray([1.0, 1.0, 2.0]))
    scores = weighing(lambda p, b: {"count": jnp.sum(b > 1), "any": jnp.any(b > 2)})(0.0, batch)
    assert (scores["count"], scores["any"]) == (0.75, 0.5)


def noisy(params, batch, key):
    """The mean of the samples, each with noise of its own."""
    return jnp.mean(params * batch + jax.random.normal(key, batch.shape))


def test_a_keyed_batch_brings_the_key_of_its_loss():
    samples, key, loss = jnp.arange(4.0), jax.random.key(3), weighing(noisy)
    want = noisy(2.0, samples, key)
    assert loss(2.0, Keyed(samples, key)) == want
    assert loss(2.0, Keyed(samples, jax.random.key(4))) != want
    weight = jnp.asarray([1.0, 0.0, 2.0, 1.0])
    noise = np.array([jax.random.normal(k, (1,))[0] for k in jax.random.split(key, 4)])
    want = ((2 * np.arange(4.0) + noise) * weight).sum() / 4
    for batch in (Keyed(Weighted(samples, weight), key), Weighted(Keyed(samples, key), weight)):
        np.testing.assert_allclose(loss(2.0, batch), want, rtol=1e-6)


class Everything:
    """Samples that are the key's data, one task, and both sides alike or not."""

    def __init__(self, sides=None):
        self.sides = sides

    def sample(self, key, size):
        return jax.random.normal(key, (size,))

    def episode(self, key):
        return Sides(self, self) if self.sides is None else Sides(*self.sides)

    task_count = 3

    def task(self, number):
        return (self, number)


def test_keyed_samples_keep_the_contract():
    key, plain = jax.random.key(0), Everything()
    keyed = KeyedSamples(plain)
    batch = keyed.sample(key, 5)
    np.testing.assert_array_equal(batch.samples, plain.sample(key, 5))
    used = [key, *jax.random.split(key, 64), *(jax.random.fold_in(key, i) for i in range(64))]
    assert not any(np.array_equal(jax.random.key_data(batch.key), jax.random.key_data(other)) for other in used)
    inner, outer = keyed.episode(key)
    assert inner is outer
    assert inner.samples is plain
    one, two = Everything(), Everything()
    inner, outer = KeyedSamples(Everything((one, two))).episode(key)
    assert (inner.samples, outer.samples) == (one, two)
    assert keyed.task_count == 3
    assert keyed.task(2).samples == (plain, 2)
