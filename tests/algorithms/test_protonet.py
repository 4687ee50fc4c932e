"""ProtoNet against numpy, and what its problem makes of a client's support data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import Weighted
from headstart.errors import UsageError
from headstart.simulate import Simulation
from tests import toy
from tests.algorithms.reference_compositional import prototype_loss

WAYS, FEATURES, SIZES = 3, 3, (8, 5, 9)
PROBLEM = hs.Prototypes(hs.MLP(inputs=FEATURES, outputs=2, hidden=()), ways=WAYS)


def clients():
    """Unequal clients, the second of which lacks a class."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(WAYS, FEATURES))
    labels = [np.arange(n) % (2 if i == 1 else WAYS) for i, n in enumerate(SIZES)]
    return [(centers[y] + rng.normal(size=(len(y), FEATURES)), y) for y in labels]


def federation():
    ends = np.cumsum(SIZES)
    rows = [np.arange(end - n, end) for end, n in zip(ends, SIZES, strict=True)]
    return hs.Federation.from_arrays(hs.Examples(*map(np.concatenate, zip(*clients(), strict=True))), rows, rows)


def numpy_rounds(weight, bias, cohorts, lr):
    losses = []
    for cohort in cohorts:
        results = [prototype_loss(weight, bias, clients()[i], clients()[i], WAYS) for i in cohort]
        weight = weight - lr * np.mean([gradient for _, gradient in results], axis=0)
        losses.append(np.mean([value for value, _ in results]))
    return weight, losses


@pytest.mark.usefixtures("x64")
def test_the_reference_differentiates_itself():
    rng, client, h = np.random.default_rng(1), clients()[1], 1e-6
    weight, bias = rng.normal(size=(FEATURES, 2)), rng.normal(size=2)
    _, gradient = prototype_loss(weight, bias, client, clients()[0], WAYS)
    for index in np.ndindex(*weight.shape):
        unit = np.zeros_like(weight)
        unit[index] = h
        ahead, behind = (prototype_loss(weight + s * unit, bias, client, clients()[0], WAYS)[0] for s in (1, -1))
        np.testing.assert_allclose(gradient[index], (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_trajectory():
    sim = Simulation(hs.ProtoNet(outer_lr=0.05, batch_size="full"), PROBLEM, federation(), cohort=2)
    layer = toy.to_numpy(sim.state.server.params).layers[0]
    cohorts = toy.cohorts(sim, 4).tolist()
    losses = sim.advance(4)["loss"].to_numpy()
    weight, want = numpy_rounds(layer.weight.T, layer.bias, cohorts, 0.05)
    assert np.abs(weight - layer.weight.T).max() > 1e-2
    end = toy.to_numpy(sim.state.server.params).layers[0]
    np.testing.assert_allclose(end.weight.T, weight, rtol=1e-8)
    np.testing.assert_allclose(end.bias, layer.bias, rtol=1e-12)
    np.testing.assert_allclose(losses, want, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_local_bsgd_with_one_step_is_protonet():
    """On the same random batches: its gradient is that of the composition on a batch."""
    sizes = {"batch_size": 4, "inner_batch_size": 3, "outer_lr": 0.1}
    ends = []
    for algorithm in (hs.ProtoNet(**sizes), hs.local_bsgd(local_steps=1, **sizes)):
        sim = Simulation(algorithm, PROBLEM, federation())
        sim.advance(3)
        ends.append(toy.to_numpy(sim.state.server.params))
    toy.assert_close(*ends, 1e-8)


def prototyped(size="full", client=0):
    algorithm, params = hs.ProtoNet(), PROBLEM.init(jax.random.key(0))
    down = algorithm.broadcast(algorithm.init_server(params), jax.random.key(0))
    view = federation().clients.view("support", jnp.asarray(client))
    return algorithm.personalize(PROBLEM.objective(), down, (), view, jax.random.key(1), 1, size)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("client", [0, 1])
def test_a_client_takes_away_its_class_means(client):
    own = prototyped(client=client)
    x, y = clients()[client]
    layer = own.params.layers[0]
    for k in range(WAYS):
        np.testing.assert_allclose(own.shares[k], (y == k).mean(), atol=1e-12)
        if (y == k).any():
            mean = (x[y == k] @ layer.weight.T + layer.bias).mean(axis=0)
            np.testing.assert_allclose(own.sums[k] / own.shares[k], mean, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_metrics_are_those_of_the_nearest_prototype():
    own, (x, y) = prototyped(client=1), clients()[0]
    layer = toy.to_numpy(own.params).layers[0]
    h = x @ layer.weight.T + layer.bias
    means = np.stack([own.sums[k] / own.shares[k] for k in range(2)])
    nearest = ((h[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    scores = PROBLEM.scores(own, hs.Examples(jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(scores["accuracy"], (nearest == y).mean(), rtol=1e-12)
    value, _ = prototype_loss(layer.weight.T, layer.bias, clients()[1], (x, y), WAYS)
    np.testing.assert_allclose(scores["loss"], value, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_samples_that_fill_a_batch_up_count_for_nothing():
    params, (x, y) = PROBLEM.init(jax.random.key(0)), clients()[0]
    batch = hs.Examples(jnp.asarray(x), jnp.asarray(y))
    some = jax.tree.map(lambda a: a[:5], batch)
    filled = Weighted(batch, jnp.asarray([1.0] * 5 + [0.0] * 3))
    objective = PROBLEM.objective()
    toy.assert_close(objective.inner(params, filled), objective.inner(params, some), 1e-12)
    own = objective.inner(params, batch)
    np.testing.assert_allclose(objective.outer(own, filled), objective.outer(own, some), rtol=1e-12)


def test_it_learns_to_tell_classes_apart_along_a_direction_that_noise_hides():
    """Classes differ in one feature of ten, the rest being louder noise: distances in the raw space say little."""
    rng = np.random.default_rng(0)

    def client():
        y = rng.permutation(np.arange(60) % 2)
        x = 3 * rng.normal(size=(60, 10))
        x[:, 0] = np.where(y == 1, 1.0, -1.0) + 0.3 * rng.normal(size=60)
        return x, y

    data = [client() for _ in range(12)]
    pool = hs.Examples(*(np.concatenate(arrays) for arrays in zip(*data, strict=True)))
    rows = np.arange(12 * 60).reshape(12, 60)
    shots = hs.Federation.from_arrays(pool, rows[:, :30], rows[:, 30:], held_out=4)
    problem = hs.Prototypes(hs.MLP(inputs=10, outputs=4, hidden=()), ways=2)
    algorithm = hs.ProtoNet(outer_lr=0.01, batch_size=20, inner_batch_size=10)
    evaluation = hs.Evaluation(steps=(1,), batch_size=10)
    result = hs.train(algorithm, problem, shots, rounds=150, evaluation=evaluation)
    first = hs.Simulation(algorithm, problem, shots).evaluate(evaluation)
    assert first["accuracy"].to_numpy()[-4:].mean() < 0.75
    assert result.final("accuracy", steps=1, group="held-out")["mean"] > 0.95


def test_it_refuses_a_loss_and_a_loss_method_refuses_its_problem():
    with pytest.raises(UsageError, match=r"ProtoNet needs .*\n.*Prototypes\(model, ways\)"):
        Simulation(hs.ProtoNet(batch_size=2), toy.LOGISTIC, toy.federation())
    with pytest.raises(UsageError, match="MetaFL minimises a loss; it cannot work on a Prototypes"):
        Simulation(hs.fedavg(batch_size=2), PROBLEM, federation())


def test_a_single_class_is_refused():
    with pytest.raises(UsageError, match="ways = 1"):
        hs.Prototypes(hs.MLP(inputs=2, outputs=2), ways=1)
