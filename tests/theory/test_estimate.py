"""Estimates of constants against problems whose constants are known, and against dense derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.theory.constants import Constants
from headstart.theory.estimate import Ball, Effort, Estimate, Estimates, Hull, estimate_constants
from tests import toy
from tests.theory.known import Features, random_problem

NAMES = tuple(Constants.__dataclass_fields__)
SUPREMA = {"smoothness", "hessian_lipschitz", "gradient_bound"}


def known_loss(params, batch):
    """The loss of tests.theory.known with the problem in the batch, so that all problems share compiled programs."""
    features, frequency, rotation = batch
    at = jnp.einsum("sij,i->sj", rotation, params)
    waves = features.cosine * jnp.cos(frequency * at) + features.sine * jnp.sin(frequency * at)
    return jnp.mean(jnp.sum(waves + features.slope * at, axis=-1))


KNOWN = hs.CustomProblem(init_fn=lambda key: jnp.zeros(3), loss_fn=known_loss)


def known_federation(known):
    count = known.clients * 3
    features = Features(*(np.float32(part).reshape(count, -1) for part in known.features))
    repeated = [np.repeat(np.float32(part)[None], count, axis=0) for part in (known.frequency, known.rotation)]
    rows = np.arange(count).reshape(-1, 3)
    return hs.Federation.from_arrays((features, *repeated), list(rows), list(rows))


@pytest.mark.parametrize("seed", range(6))
def test_all_constants_of_known_problems(seed):
    known = random_problem(seed)
    # The waves' longest period is 4 pi, so that the ball holds a whole one in every direction.
    found = estimate_constants(KNOWN, known_federation(known), Ball(jnp.zeros(3), 15.0), effort=Effort(products=4))
    for name, estimate in found.items():
        truth = getattr(known.constants, name)
        short = 0.1 if name in SUPREMA else 0.05
        assert truth * (1 - short) <= estimate.value <= truth * 1.001, name
        assert 0 <= estimate.standard_error <= 0.1 * truth
    assert tuple(found) == NAMES
    assert found.constants().smoothness == found["smoothness"].value


def test_suprema_on_the_edge_of_a_ball():
    """``w' A w / 2 + c (a'w)^3 / 6``: L and B are attained on the edge along ``a``."""
    a = jnp.asarray([0.6, 0.8])
    radius, stiff, weak, cubic = 2.0, 3.0, 1.0, 0.5

    def loss(w, batch):
        along = w @ a
        return jnp.mean(batch) * (weak * (w @ w) / 2 + (stiff - weak) * along**2 / 2 + cubic * along**3 / 6)

    problem = hs.CustomProblem(init_fn=lambda key: jnp.zeros(2), loss_fn=loss)
    rows = [np.array([0]), np.array([1])]
    federation = hs.Federation.from_arrays(np.float32([1.0, 2.0]), rows, rows)
    effort, names = Effort(starts=3, steps=8, products=2), ["smoothness", "gradient_bound"]
    found = estimate_constants(problem, federation, Ball(jnp.zeros(2), radius), names=names, effort=effort)
    truth = {
        "smoothness": 2 * (stiff + cubic * radius),
        "gradient_bound": 2 * (stiff * radius + cubic * radius**2 / 2),
    }
    for name, value in truth.items():
        assert found[name].value == pytest.approx(value, rel=0.01)
    segment = Hull([-radius * a, jnp.zeros(2)])
    along = estimate_constants(problem, federation, segment, names=["smoothness"], effort=effort)
    assert along["smoothness"].value == pytest.approx(2 * stiff, rel=0.01)  # the cubic part softens the negative side


def test_unequal_clients_against_dense_derivatives():
    found = estimate_constants(
        toy.LOGISTIC,
        toy.federation(),
        Ball(toy.start(), 0.0),
        names=["hessian_noise", "hessian_lipschitz", "gradient_dissimilarity"],
        effort=Effort(starts=2, climbs=1, steps=4, products=4, samples=None),
    )
    w = jnp.asarray(toy.flat(toy.start()))

    def loss(w, x, y):
        return jax.nn.softplus(-y * (x @ w[:-1] + w[-1]))

    def each_sample(derivative):
        each = jax.jit(jax.vmap(derivative(loss), (None, 0, 0)))
        return [np.asarray(each(w, *train)) for train, _ in toy.client_arrays()]

    gradients = np.stack([g.mean(0) for g in each_sample(jax.grad)])
    spread = np.sqrt(np.mean(np.sum((gradients - gradients.mean(0)) ** 2, axis=1)))
    assert found["gradient_dissimilarity"].value == pytest.approx(spread, rel=1e-3)

    bends = [np.linalg.norm(h - h.mean(0), 2, axis=(1, 2)) for h in each_sample(jax.hessian)]
    noise = np.sqrt(max(np.mean(bend**2) for bend in bends))
    assert found["hessian_noise"].value == pytest.approx(noise, rel=1e-3)
    assert found["hessian_noise"].standard_error < 1e-3 * noise  # all samples were looked at

    directions = np.random.default_rng(0).normal(size=(20_000, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    thirds = [third.mean(0) for third in each_sample(lambda f: jax.jacfwd(jax.hessian(f)))]
    # The norm of a symmetric trilinear form is attained with all three vectors equal.
    seen = max(np.abs(np.einsum("abc,sa,sb,sc->s", t, *[directions] * 3, optimize=True)).max() for t in thirds)
    assert seen <= found["hessian_lipschitz"].value * 1.0001
    assert found["hessian_lipschitz"].value <= seen * 1.05


def test_samples_of_a_distribution_and_their_standard_errors():
    """``(w - z)^2 / 2`` with ``z`` normal: sigma_G is its deviation, kappa_G three times the fourth power of it."""
    deviation, mean = 1.5, jnp.asarray([0.0, 4.0])

    def draw(task, key, size):
        return task + deviation * jax.random.normal(key, (size,))

    federation = hs.Federation.from_tasks(mean, draw, query_size=1)
    problem = hs.CustomProblem(lambda key: jnp.zeros(()), lambda w, z: jnp.mean((w - z) ** 2) / 2)
    found = estimate_constants(
        problem,
        federation,
        Ball(jnp.zeros(()), 0.0),
        names=["gradient_noise", "gradient_fourth_moment", "gradient_dissimilarity"],
        batch_size=4096,
        effort=Effort(starts=2, climbs=0),
    )
    truth = {"gradient_noise": deviation, "gradient_fourth_moment": 3 * deviation**4}
    for name, value in truth.items():
        error = found[name].standard_error
        assert 0 < error < 0.1 * value
        assert abs(found[name].value - value) < 4 * error
    assert found["gradient_noise"].samples == 4096
    assert found["gradient_dissimilarity"].value == pytest.approx(2.0, rel=0.05)


def test_a_sample_of_clients_stands_for_all():
    """The variance over some clients estimates that over all without bias, and its error shrinks with their number."""
    centers = np.random.default_rng(0).normal(size=60).astype(np.float32)
    rows = [np.array([i]) for i in range(60)]
    federation = hs.Federation.from_arrays(centers, rows, rows)
    problem = hs.CustomProblem(lambda key: jnp.zeros(()), lambda w, z: jnp.mean((w - z) ** 2) / 2)

    def estimate(clients, seed=0):
        found = estimate_constants(
            problem,
            federation,
            Ball(jnp.zeros(()), 0.0),
            names=["gradient_dissimilarity"],
            clients=clients,
            seed=seed,
            effort=Effort(starts=2, climbs=0),
        )
        return found["gradient_dissimilarity"]

    some = [estimate(6, seed) for seed in range(60)]
    variance = centers.var()
    assert np.mean([e.value**2 for e in some]) == pytest.approx(variance, rel=0.15)
    assert estimate(None).value == pytest.approx(np.sqrt(variance), rel=1e-4)
    assert estimate(None).standard_error == 0
    assert estimate(30).standard_error < np.mean([e.standard_error for e in some])


def test_safety_factor_and_missing_constants():
    found = Estimates({name: Estimate(2.0, 0.1, 5, "made up") for name in NAMES})
    constants = found.constants(safety=1.5)
    assert constants.smoothness == 3.0
    assert constants.hessian_fourth_moment == 2.0 * 1.5**4
    assert str(found["smoothness"]) == "2 +- 0.1 (made up)"
    with pytest.raises(hs.UsageError, match="hessian_lipschitz, gradient_bound"):
        Estimates({"smoothness": found["smoothness"]}).constants()
    with pytest.raises(hs.UsageError, match="safety"):
        found.constants(safety=0.5)


REGION = Ball(toy.start(), 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["smothness"]}, "Did you mean 'smoothness'"),
        ({"federation": toy.federation().grouped([[0, 1], [2]])}, "several tasks"),
        ({"problem": hs.CompositionalProblem(toy.start, lambda p, b: p, lambda g, b: g)}, "not a mean over samples"),
        ({"clients": 9}, "only 5 train"),
        ({"clients": [0, 7]}, "numbers 0 to 4"),
        ({"batch_size": 0}, "batch_size"),
        (
            {
                "problem": hs.CustomProblem(toy.start, lambda p, b: jnp.sqrt(jnp.sum(p["weight"]) - 9)),
                "names": ["gradient_bound"],
            },
            "gradient_bound of client 0 is not finite",
        ),
    ],
)
def test_mistakes(change, message):
    arguments = {"problem": toy.LOGISTIC, "federation": toy.federation(), "region": REGION, **change}
    with pytest.raises(hs.UsageError, match=message):
        estimate_constants(**arguments)


def test_endless_clients_have_to_be_counted():
    federation = hs.Federation.from_distribution(
        lambda key: jax.random.normal(key), lambda task, key, size: task + jax.random.normal(key, (size,)), query_size=1
    )
    with pytest.raises(hs.UsageError, match="clients=20"):
        estimate_constants(toy.LOGISTIC, federation, REGION)
