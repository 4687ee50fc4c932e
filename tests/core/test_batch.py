import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import Weighted, check_size, weighing
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
