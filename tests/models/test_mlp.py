import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.models import ACTIVATIONS, MLP


@pytest.mark.usefixtures("x64")
def test_forward_pass():
    mlp = MLP(inputs=(2, 3), outputs=2, hidden=(5, 4), activation="elu")
    params = mlp.init(jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(7, 2, 3))
    h = x.reshape(7, 6)
    for layer in params.layers[:-1]:
        z = h @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        h = np.where(z > 0, z, np.expm1(z))
    want = h @ np.asarray(params.layers[-1].weight).T + np.asarray(params.layers[-1].bias)
    np.testing.assert_allclose(mlp.apply(params, jnp.asarray(x)), want, rtol=1e-12)


def test_fresh_parameters_are_uniform_within_one_over_root_fan_in():
    params = MLP(inputs=100, outputs=10, hidden=(80, 60)).init(jax.random.key(1))
    assert [layer.weight.shape for layer in params.layers] == [(80, 100), (60, 80), (10, 60)]
    for layer in params.layers:
        bound = 1 / np.sqrt(layer.weight.shape[1])
        for leaf in (layer.weight, layer.bias):
            assert np.abs(leaf).max() <= bound
        assert abs(np.std(layer.weight) * np.sqrt(3) / bound - 1) < 0.1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_runs(name):
    mlp = MLP(inputs=2, outputs=1, hidden=(3,), activation=name)
    assert mlp.apply(mlp.init(jax.random.key(0)), jnp.ones((4, 2))).shape == (4, 1)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: MLP(inputs=2, outputs=1, activation="rellu"), "no activation 'rellu'.*Did you mean 'relu'"),
        (lambda: MLP(inputs=0, outputs=1), "inputs = 0"),
        (lambda: MLP(inputs=2, outputs=1, hidden=(3, 0)), "hidden = 0"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def test_initial_weights_have_the_variance_asked_for():
    key = jax.random.key(0)
    variances = {"uniform": (1 / 300, 1 / 300), "he": (2 / 100, 0.0), "he-normal-bias": (2 / 100, 1.0)}
    for initial, (weight, bias) in variances.items():
        layer = MLP(inputs=100, outputs=2000, hidden=(), initial=initial).init(key).layers[0]
        np.testing.assert_allclose(np.var(layer.weight), weight, rtol=0.05)
        np.testing.assert_allclose(np.mean(np.square(layer.bias)), bias, rtol=0.1)


def test_an_activation_of_the_outputs():
    plain, bent = (MLP(inputs=3, outputs=4, hidden=(), output_activation=name) for name in (None, "elu-0.2"))
    params, x = plain.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (5, 3))
    out = np.asarray(plain.apply(params, x))
    expected = np.where(out > 0, out, 0.2 * np.expm1(out))
    np.testing.assert_allclose(bent.apply(bent.init(jax.random.key(0)), x), expected, rtol=1e-5)
    with pytest.raises(UsageError, match="no initial 'hee'"):
        MLP(inputs=1, outputs=1, initial="hee")
