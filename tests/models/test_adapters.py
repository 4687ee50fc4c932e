import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import headstart as hs
from headstart.errors import UsageError


class OwnEquinox(eqx.Module):
    linear: eqx.nn.Linear
    scale: jax.Array
    calls: jax.Array
    name: str = eqx.field(static=True)

    def __init__(self, key):
        self.linear = eqx.nn.Linear(1, 1, key=key)
        self.scale = jnp.ones(())
        self.calls = jnp.arange(3)
        self.name = "own"

    def __call__(self, x):
        return self.scale * jnp.tanh(self.linear(x))


class OwnNNX(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(1, 4, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(self.norm(nnx.tanh(self.linear(x)))))


@pytest.mark.parametrize(("adapter", "module"), [(hs.EquinoxModel, OwnEquinox), (hs.NNXModel, OwnNNX)])
def test_a_users_own_module_trains_in_three_lines(adapter, module):
    problem = hs.Regression(adapter(module))
    federation = hs.data.sine(clients=3, held_out=1)
    result = hs.train(hs.per_fedavg(batch_size=5, local_steps=2), problem, federation, rounds=2)

    assert result.history.num_rows == 2
    assert np.isfinite(result.final("loss", 1)["mean"])
    fresh = problem.init(jax.random.key(0))
    assert jax.tree.structure(result.params) == jax.tree.structure(fresh)
    for leaf in jax.tree.leaves(fresh):
        assert jnp.issubdtype(leaf.dtype, jnp.floating)


def test_equinox_apply_is_the_module_on_every_sample():
    model, key, x = hs.EquinoxModel(OwnEquinox), jax.random.key(3), jnp.linspace(0, 1, 4)[:, None]
    np.testing.assert_allclose(model.apply(model.init(key), x), jax.vmap(OwnEquinox(key))(x), rtol=1e-6)


def test_an_equinox_module_may_take_a_batch():
    model = hs.EquinoxModel(lambda key: hs.MLP(inputs=2, outputs=1).init(key), batched=True)
    assert model.apply(model.init(jax.random.key(0)), jnp.ones((4, 2))).shape == (4, 1)


def test_nnx_dropout_is_off_and_apply_is_pure():
    model, x = hs.NNXModel(OwnNNX), jnp.linspace(0, 1, 4)[:, None]
    params = model.init(jax.random.key(0))
    first = model.apply(params, x)
    np.testing.assert_array_equal(first, model.apply(params, x))
    module = OwnNNX(nnx.Rngs(jax.random.key(0)))
    module.eval()
    np.testing.assert_allclose(first, module(x), rtol=1e-6)


def test_nnx_batch_normalisation_is_refused():
    class Normalised(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(2, rngs=rngs)

    with pytest.raises(UsageError, match=r"(?s)keeps batch statistics.*LayerNorm"):
        hs.NNXModel(Normalised).init(jax.random.key(0))
