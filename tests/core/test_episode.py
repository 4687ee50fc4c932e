import itertools

import jax
import numpy as np
import pytest

from headstart.core import BatchSizes, Sides, Weighted
from headstart.errors import UsageError
from tests import toy


class Noise:
    """A client whose draws never repeat."""

    def sample(self, key, size):
        return jax.random.normal(key, (size,))

    def episode(self, key):
        return Sides(self, self)


def draw(sizes, steps=3, looks_at="own", client=None, seed=0):
    return sizes.draw(client or Noise(), jax.random.key(seed), steps, looks_at)


def batches_of(episode):
    return [*np.asarray(episode.inner), *np.asarray(episode.curvature), np.asarray(episode.outer)]


def test_the_two_nu_plus_one_batches_are_independent():
    episode = draw(BatchSizes(400))
    batches = batches_of(episode)
    assert len(batches) == 7
    values = np.concatenate(batches)
    assert len(np.unique(values)) == len(values)
    for one, other in itertools.combinations(batches, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(400)


def test_another_key_draws_another_episode():
    assert not np.isin(batches_of(draw(BatchSizes(5))), batches_of(draw(BatchSizes(5), seed=1))).any()


def test_first_order_draws_no_curvature_batches():
    episode = draw(BatchSizes(5), looks_at="nothing")
    assert episode.curvature is None
    assert episode.inner.shape == (3, 5)
    assert BatchSizes(5).count(3, "nothing") == {5: 4}


def test_each_family_has_its_size():
    episode = draw(BatchSizes(2, inner=3, curvature=4))
    assert (episode.outer.shape, episode.inner.shape, episode.curvature.shape) == ((2,), (3, 3), (3, 4))
    assert BatchSizes(2, inner=3, curvature=4).count(3, "own") == {2: 1, 3: 3, 4: 3}


def test_one_size_an_inner_step():
    sizes = BatchSizes(4, inner=(2, 5, 1), curvature=(3, 3, 3))
    episode = draw(sizes)
    assert isinstance(episode.inner, Weighted)
    np.testing.assert_array_equal(episode.inner.weight.sum(axis=1), [2, 5, 1])
    assert episode.inner.samples.shape == (3, 5)
    assert episode.curvature.shape == (3, 3)
    assert sizes.count(3, "own") == {4: 1, 2: 1, 5: 1, 1: 1, 3: 3}


def test_a_shared_batch_is_one_draw():
    sizes = BatchSizes(5, shared=True)
    episode = draw(sizes)
    for batch in batches_of(episode):
        np.testing.assert_array_equal(batch, episode.outer)
    assert sizes.count(3, "own") == {5: 1}


def test_full_is_everything_every_time():
    view = toy.federation().clients.view("train", jax.numpy.asarray(0))
    episode = draw(BatchSizes("full"), client=view)
    for batch in (episode.inner, episode.curvature):
        for step in range(3):
            toy.assert_same_bits(jax.tree.map(lambda a, step=step: a[step], batch), episode.outer)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: BatchSizes(0), "batch_size = 0"),
        (lambda: BatchSizes(4, inner=(2, 0)), "inner_batch_size = 0"),
        (lambda: BatchSizes(4, curvature=2.5), "curvature_batch_size = 2.5"),
        (lambda: BatchSizes(4, inner=(2, "full")), "mixes 'full' with numbers.*numbers only"),
        (lambda: BatchSizes(4, inner=2, shared=True), "shared batch has one size.*shared_batch to false"),
        (lambda: BatchSizes(4, inner=(2, 3)).check_steps(3), "2 sizes for 3 inner steps.*one size, or 3"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
