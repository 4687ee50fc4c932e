"""The small problem and federation that most tests share, and how they compare pytrees."""

import jax
import jax.numpy as jnp
import numpy as np

import headstart as hs
from headstart.simulate import Callback
from headstart.simulate.rounds import draw_cohorts

SIZES = (5, 9, 6, 7, 8)
QUERY = 4
FEATURES = 3


def client_arrays(sizes=SIZES, seed=0, query_sizes=None):
    """For each client its training and its query samples ``(x, y)``, with labels -1 and 1."""
    rng = np.random.default_rng(seed)

    def samples(size, center):
        x = rng.normal(center, 1.0, (size, FEATURES))
        return x, np.where(rng.random(size) < 0.5, -1.0, 1.0)

    centers = rng.normal(size=(len(sizes), FEATURES))
    query_sizes = query_sizes or [QUERY] * len(sizes)
    return [(samples(n, c), samples(q, c)) for n, q, c in zip(sizes, query_sizes, centers, strict=True)]


def federation(sizes=SIZES, held_out=0, query_sizes=None, **options):
    """The same clients as row lists into one pool."""
    clients = client_arrays(sizes, query_sizes=query_sizes)
    parts = [part for client in clients for part in client]
    ends = np.cumsum([len(y) for _, y in parts])
    rows = [np.arange(end - len(y), end) for end, (_, y) in zip(ends, parts, strict=True)]
    pool = hs.Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    return hs.Federation.from_arrays(pool, rows[::2], rows[1::2], held_out=held_out, **options)


def start(key=None):
    return {"weight": jnp.asarray([0.5, -0.3, 0.2]), "bias": jnp.asarray(0.1)}


def logistic_loss(params, batch):
    return jnp.mean(jax.nn.softplus(-batch.y * (batch.x @ params["weight"] + params["bias"])))


LOGISTIC = hs.CustomProblem(init_fn=start, loss_fn=logistic_loss)
MLP = hs.Regression(hs.MLP(inputs=FEATURES, outputs=1, hidden=(4,), activation="tanh"))


def flat(params):
    """Logistic parameters as one vector with the bias last."""
    return np.concatenate([np.asarray(params["weight"]), np.asarray(params["bias"])[None]])


def cohorts(sim, rounds):
    """Who takes part in the coming rounds, without those that fill a cohort up."""
    drawn = draw_cohorts(sim.plan, sim.keys, jnp.asarray(sim.round, jnp.int32), rounds)
    return np.asarray(drawn.clients)[:, : sim.plan.cohort]


def to_numpy(tree):
    return jax.tree.map(np.asarray, tree)


def assert_close(actual, expected, relative):
    """Leaf by leaf, the largest difference within ``relative`` of the largest entry."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        got, want = np.asarray(got, float), np.asarray(want, float)
        assert np.isfinite(got).all()
        assert np.abs(got - want).max(initial=0) <= relative * np.abs(want).max(initial=0)


def assert_same_bits(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


class _Stopping(Callback):
    def __init__(self, after):
        self.after = after

    def on_chunk(self, progress):
        return "enough" if progress.round >= self.after else None


def stopping(after):
    """Callbacks that end a run after so many rounds; none for ``None``."""
    return [] if after is None else [_Stopping(after)]
