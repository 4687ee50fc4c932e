import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import descend, step_keys

pytestmark = pytest.mark.usefixtures("x64")

LR, STEPS = 0.1, 4
PATH = 2.0 * (1 - LR) ** np.arange(STEPS + 1)


def bowl(w, key):
    return w**2 / 2, w


def run(keep=None):
    return descend(bowl, jnp.asarray(2.0), STEPS, LR, jax.random.key(0), keep)


def test_takes_the_steps_and_reports_the_mean_loss_before_each():
    end = run()
    np.testing.assert_allclose(end.params, PATH[-1], rtol=1e-14)
    np.testing.assert_allclose(end.loss, np.mean(PATH[:-1] ** 2 / 2), rtol=1e-14)
    assert end.iterate is None


@pytest.mark.parametrize("keep", range(STEPS))
def test_keeps_the_iterate_before_step_t(keep):
    np.testing.assert_allclose(run(jnp.asarray(keep)).iterate, PATH[keep], rtol=1e-14)


def test_every_step_has_a_key_of_its_own_that_more_steps_do_not_change():
    def noise(w, key):
        return jnp.zeros(()), jax.random.normal(key)

    ends = [float(descend(noise, jnp.zeros(()), n, 1.0, jax.random.key(3)).params) for n in (1, 2, 3)]
    moves = np.diff([0.0, *ends])
    assert len(set(moves.tolist())) == 3
    again = [float(jax.random.normal(jax.random.fold_in(jax.random.key(3), t))) for t in range(3)]
    np.testing.assert_allclose(-moves, again, rtol=1e-12)


def test_steps_that_reuse_a_batch_all_have_the_first_ones_key():
    keys = jax.random.key_data(step_keys(jax.random.key(3), 4))
    reused = jax.random.key_data(step_keys(jax.random.key(3), 4, reuse=True))
    np.testing.assert_array_equal(reused, np.broadcast_to(keys[0], keys.shape))
    assert len(np.unique(keys, axis=0)) == 4
