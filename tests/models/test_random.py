"""Models with dropout, of every kind: on in training, off in evaluation, and the same wherever a batch is looked at."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import headstart as hs
from headstart.algorithms import ALGORITHMS
from headstart.core import FULL, Keyed, KeyedSamples, UserComposition, Weighted, tree
from headstart.errors import UsageError
from headstart.models import LinenModel, PairModel
from headstart.models.mlp import dropped
from tests import toy

INPUTS, OUTPUTS, RATE = toy.FEATURES, 2, 0.5


class OwnEquinox(eqx.Module):
    first: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    second: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.first, self.second = eqx.nn.Linear(INPUTS, 16, key=one), eqx.nn.Linear(16, OUTPUTS, key=two)
        self.dropout = eqx.nn.Dropout(RATE)

    def __call__(self, x, key=None):
        return self.second(self.dropout(jnp.tanh(self.first(x)), key=key))


class BatchedEquinox(OwnEquinox):
    def __call__(self, x, key=None):
        return jax.vmap(self.second)(self.dropout(jnp.tanh(jax.vmap(self.first)(x)), key=key))


class OwnNNX(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(INPUTS, 16, rngs=rngs), nnx.Linear(16, OUTPUTS, rngs=rngs)
        self.dropout = nnx.Dropout(RATE, rngs=rngs)

    def __call__(self, x):
        return self.second(self.dropout(jnp.tanh(self.first(x))))


class OwnLinen(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        x = linen.Dropout(RATE, deterministic=not train)(jnp.tanh(linen.Dense(16)(x)))
        return linen.Dense(OUTPUTS)(x)


@hk.transform
def own_haiku(x, train):
    x = jnp.tanh(hk.Linear(16)(x))
    return hk.Linear(OUTPUTS)(hk.dropout(hk.next_rng_key(), RATE, x) if train else x)


EXAMPLE = jnp.zeros((1, INPUTS))
MODELS = {
    "mlp": hs.MLP(INPUTS, OUTPUTS, hidden=(16,), activation="tanh", dropout=RATE),
    "equinox": hs.EquinoxModel(OwnEquinox),
    "equinox, batched": hs.EquinoxModel(BatchedEquinox, batched=True),
    "nnx": hs.NNXModel(OwnNNX),
    "linen": LinenModel(OwnLinen(), EXAMPLE),
    "haiku": PairModel(
        lambda key, x: own_haiku.init(key, x, False),
        lambda params, x, key: own_haiku.apply(params, key, x, key is not None),
        EXAMPLE,
    ),
}


def problem_and_batch(name):
    problem = hs.Classification(MODELS[name])
    rng = np.random.default_rng(0)
    batch = hs.Examples(jnp.asarray(rng.normal(size=(8, INPUTS))), jnp.asarray(rng.integers(0, OUTPUTS, 8)))
    return problem, problem.init(jax.random.key(0)), batch


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
def test_on_in_training_and_off_in_evaluation(name):
    problem, params, batch = problem_and_batch(name)
    assert problem.random
    loss = jax.jit(problem.objective())
    one, two = (Keyed(batch, jax.random.key(i)) for i in range(2))
    still = loss(params, batch)
    assert loss(params, one) == loss(params, one)
    assert len({float(value) for value in (loss(params, one), loss(params, two), still)}) == 3
    np.testing.assert_allclose(problem.scores(params, batch)["loss"], still, rtol=1e-12)
    outputs = MODELS[name].apply(params, batch.x)
    np.testing.assert_array_equal(outputs, MODELS[name].apply(params, batch.x))
    weighted = Weighted(batch, jnp.asarray([1.0] * 5 + [0.0] * 3))
    first = jax.tree.map(lambda a: a[:5], batch)
    np.testing.assert_allclose(problem.scores(params, weighted)["loss"], loss(params, first), rtol=1e-12)
    assert loss(params, Keyed(weighted, jax.random.key(0))) != loss(params, first)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_has_one_mask(name):
    """The Hessian-vector product on a batch is the difference of its gradients: both see the same units left out."""
    problem, params, batch = problem_and_batch(name)
    params = jax.tree.map(lambda a: a.astype(jnp.float64), params)
    v = jax.tree.map(lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), params)
    objective, keyed, h = problem.objective(), Keyed(batch, jax.random.key(5)), 1e-5

    @jax.jit
    def products(params):
        def gradient(w):
            return jax.grad(objective)(w, keyed)

        ahead, behind = (gradient(tree.add_scaled(params, step, v)) for step in (h, -h))
        return jax.jvp(gradient, (params,), (v,))[1], jax.tree.map(lambda a, b: (a - b) / (2 * h), ahead, behind)

    exact, difference = products(params)
    for got, want in zip(jax.tree.leaves(exact), jax.tree.leaves(difference), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-8)


def test_dropout_keeps_the_mean():
    x = jnp.full((400, 500), 3.0)
    left = np.asarray(dropped(x, 0.2, jax.random.key(0)))
    np.testing.assert_allclose(np.unique(left), [0, 3.75])
    np.testing.assert_allclose(np.mean(left == 0), 0.2, atol=0.005)


FEDERATION = toy.federation()


def labelled(model):
    """A random problem on the toy samples, whose labels are -1 and 1."""

    def loss(params, batch, key=None):
        logits = model.apply(params, batch.x, key)
        return jnp.mean(jax.nn.softplus(-batch.y * (logits[:, 1] - logits[:, 0])))

    return hs.CustomProblem(model.init, loss)


def test_every_algorithm_takes_keyed_batches():
    problem = labelled(MODELS["mlp"])
    assert problem.random
    params, objective = problem.init(jax.random.key(0)), problem.objective()
    view = problem.view(FEDERATION.clients.view("train", jnp.asarray(0)))
    assert isinstance(view, KeyedSamples)
    assert problem.view(view) is view
    tried = 0
    for name, entry in ALGORITHMS.items():
        algorithm = entry.build()
        if name == "protonet":
            continue  # it works on prototypes alone
        algorithm = algorithm.prepare(objective, params, problem.view(FEDERATION.clients.shapes()))
        down = algorithm.broadcast(algorithm.init_server(params), jax.random.key(1))
        state = algorithm.init_client(params)
        shapes = jax.eval_shape(
            lambda down, state, algorithm=algorithm: algorithm.client_update(
                objective, down, state, view, jax.random.key(2)
            ),
            down,
            state,
        )
        assert shapes.metrics["loss"].shape == (), name
        own = jax.eval_shape(
            lambda down, state, algorithm=algorithm: algorithm.personalize(
                objective, down, state, view, jax.random.key(2), 2, 3
            ),
            down,
            state,
        )
        assert jax.tree.structure(own) == jax.tree.structure(params), name
        tried += 1
    assert tried > 10


def test_prototypes_of_a_random_embedding():
    problem = hs.Prototypes(MODELS["mlp"], ways=2)
    _, params, batch = problem_and_batch("mlp")
    objective = problem.objective()
    assert problem.random
    assert isinstance(objective, UserComposition)
    one, two = (objective.inner(params, Keyed(batch, jax.random.key(i))) for i in range(2))
    assert not np.allclose(one.sums, two.sums)
    own = objective.inner(params, batch)
    losses = {float(objective.outer(own, b)) for b in (batch, Keyed(batch, jax.random.key(0)))}
    assert len(losses) == 2
    np.testing.assert_allclose(problem.scores(own, batch)["loss"], objective.outer(own, batch), rtol=1e-6)


def test_training_is_random_and_repeats():
    """Full batches and batches of unequal sizes, in compiled rounds: seeds alone decide the masks."""
    sizes = hs.MetaFL(inner_steps=2, batch_size=4, inner_batch_size=(3, 2), local_steps=2, outer_lr=0.1)
    for algorithm in (hs.per_fedavg(batch_size=FULL, local_steps=2, outer_lr=0.1), sizes):
        evaluation = hs.Evaluation(steps=(0, 1))

        def trained(dropout, algorithm=algorithm, evaluation=evaluation):
            model = hs.MLP(INPUTS, OUTPUTS, hidden=(16,), dropout=dropout)
            return hs.train(algorithm, labelled(model), FEDERATION, rounds=2, evaluation=evaluation)

        one, two, none = trained(RATE), trained(RATE), trained(0.0)
        toy.assert_same_bits(one.params, two.params)
        assert one.history["loss"].to_pylist() != none.history["loss"].to_pylist()
        # Before training and adaptation, evaluation sees the same model with and without dropout.
        assert one.table["loss"][:5].to_pylist() == none.table["loss"][:5].to_pylist()
        assert one.table["loss"][5:10].to_pylist() != none.table["loss"][5:10].to_pylist()


def test_nothing_changes_without_randomness():
    problem = hs.Classification(hs.MLP(INPUTS, OUTPUTS))
    view = FEDERATION.clients.view("train", jnp.asarray(0))
    assert not problem.random
    assert problem.view(view) is view
    assert not hs.EquinoxModel(lambda key: eqx.nn.MLP(2, 2, 4, 1, key=key)).random
    assert not hs.NNXModel(lambda rngs: nnx.Linear(2, 2, rngs=rngs)).random
    assert not LinenModel(linen.Dense(2), EXAMPLE).random
    assert not PairModel(lambda key: key, lambda params, x: x).random


def test_a_loss_may_take_its_key_by_name_or_by_place():
    def augmented(params, batch, *, key=None):
        noise = 0.0 if key is None else jax.random.normal(key, batch.x.shape)
        return toy.logistic_loss(params, hs.Examples(batch.x + noise, batch.y))

    for loss in (augmented, lambda params, batch, seed: augmented(params, batch, key=seed)):
        problem = hs.CustomProblem(toy.start, loss)
        assert problem.random
        batch = hs.Examples(jnp.ones((2, 3)), jnp.ones(2))
        still = problem.objective()(toy.start(), batch)
        np.testing.assert_allclose(still, toy.logistic_loss(toy.start(), batch))
        assert problem.objective()(toy.start(), Keyed(batch, jax.random.key(0))) != still
    assert not hs.CustomProblem(toy.start, augmented, random=False).random


def test_dropout_without_a_key_is_refused():
    class Keyless(eqx.Module):
        dropout: eqx.nn.Dropout

        def __call__(self, x):
            return self.dropout(x)

    with pytest.raises(UsageError, match=r"(?s)Keyless has dropout, but calling it takes no key"):
        hs.EquinoxModel(lambda key: Keyless(eqx.nn.Dropout(0.5)))
    assert not hs.EquinoxModel(lambda key: Keyless(eqx.nn.Dropout(0.0))).random
    for rate, words in ((-0.1, "dropout = -0.1 is below 0"), (1.0, "dropout = 1.0 leaves nothing over")):
        with pytest.raises(UsageError, match=words):
            hs.MLP(2, 2, dropout=rate)


@pytest.mark.parametrize(
    ("module", "words"),
    [(linen.BatchNorm(use_running_average=False), r"(?s)keeps batch_stats.*GroupNorm")],
)
def test_linen_modules_that_change_while_they_run_are_refused(module, words):
    with pytest.raises(UsageError, match=words):
        LinenModel(module, EXAMPLE).init(jax.random.key(0))


def test_pairs_and_linen_modules_give_what_they_give():
    x, key = jnp.linspace(0, 1, 12).reshape(4, 3), jax.random.key(0)
    linear = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(2)(x)))
    model = PairModel(*linear, example=x)
    np.testing.assert_allclose(model.apply(model.init(key), x), linear.apply(linear.init(key, x), x))
    dense = linen.Dense(2)
    model = LinenModel(dense, x)
    np.testing.assert_allclose(model.apply(model.init(key), x), dense.apply(dense.init(key, x), x))
    assert hash(model) == hash(LinenModel(linen.Dense(2), x))
    assert model == LinenModel(linen.Dense(2), x)
