import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from flax import linen, nnx

import headstart as hs
from headstart.artifact.architecture import architecture_of, built
from headstart.simulate.files import named_leaves


def equinox_network(key, width=4):
    return eqx.nn.MLP(3, 2, width_size=width, depth=1, key=key)


def nnx_network(rngs):
    return nnx.Linear(3, 2, rngs=rngs)


def pair_init(key):
    return {"slope": jax.random.normal(key, (3, 2))}


def pair_apply(params, x):
    return x @ params["slope"]


def arrays(model):
    return {name: np.asarray(leaf) for name, leaf in named_leaves(model.init(jax.random.key(0)))}


BUNDLED = [
    hs.MLP(3, 2, hidden=(4, 5), activation="relu"),
    hs.Linear((4, 4), 2),
    hs.Conv((8, 8), 5, filters=4, blocks=2),
    hs.CNN((8, 8, 3), 5, filters=(2, 3), hidden=7, kernel=3),
    hs.Recurrent((5, 7), 7, hidden=(4,), cell="gru"),
    hs.ResNet((8, 8, 3), 5, depth=8, width=4, groups=2),
]


@pytest.mark.parametrize("model", BUNDLED, ids=lambda model: type(model).__name__)
def test_bundled_networks_are_built_from_what_is_said(model):
    said = architecture_of(model)
    assert said.bundled
    assert not said.imports
    assert built(said, False, arrays(model)) == model


OWN = [
    hs.EquinoxModel(functools.partial(equinox_network, width=6)),
    hs.NNXModel(nnx_network),
    hs.LinenModel(linen.Dense(2), example=np.zeros((1, 3), np.float32)),
    hs.PairModel(pair_init, pair_apply),
]


@pytest.mark.parametrize("model", OWN, ids=lambda model: type(model).__name__)
def test_networks_of_ones_own_are_built_where_they_are_trusted(model):
    said = architecture_of(model)
    assert said.missing is None
    assert said.needs
    with pytest.raises(hs.UsageError, match="trust=True"):
        built(said, False, {})
    again = built(said, True, {})
    params, x = model.init(jax.random.key(0)), np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(again.apply(params, x), model.apply(params, x))


def test_a_lambda_has_to_be_brought_along():
    said = architecture_of(hs.PairModel(lambda key: pair_init(key), pair_apply))
    with pytest.raises(hs.UsageError, match="model="):
        built(said, True, {})


def test_a_file_of_a_lambda_loads_with_the_network(tmp_path, frame):
    federation = hs.data.table(frame[["who", "size", "age", "likes"]].fillna(0.0), client="who", label="likes")
    model = hs.EquinoxModel(lambda key: eqx.nn.MLP(2, 2, 4, 1, key=key))
    experiment = hs.Experiment(
        hs.Aruba(batch_size=5, local_steps=1), hs.Classification(model), federation,
        rounds=2, cohort=2, backend="vmap",
    )  # fmt: skip
    path = experiment.run(tmp_path / "run").record.path / "Aruba" / "model.safetensors"
    with pytest.raises(hs.UsageError, match="model="):
        hs.load(path, trust=True)
    loaded = hs.load(path, model=experiment.problem.model)
    assert set(loaded.extras) == {"distance", "gradient"}
    rows = frame.fillna({"size": 0.0})
    assert loaded.predict(rows).shape == (len(rows),)
    assert loaded.adapt(rows.iloc[:6], label="likes").adaptation.lr is None
    assert "needs equinox" in loaded.card()
