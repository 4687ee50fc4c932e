import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import Decay, LazyMemory, Memory, Trail, recall, refreshed, remember
from tests import toy

TASKS, DRAWN, ITERATIONS, SIZE = 25, 3, 4000, 8


def test_a_memory_begins_with_what_it_is_first_given():
    first, second = {"a": jnp.asarray([1.0, -2.0])}, {"a": jnp.asarray([3.0, 4.0])}
    memory = remember(Memory.empty(first), first, 0.25)
    toy.assert_same_bits(memory, Memory(first, jnp.asarray(True)))
    memory = remember(memory, second, 0.25)
    np.testing.assert_allclose(memory.value["a"], [1.5, -0.5])


def test_averaging_one_forgets():
    memory = remember(Memory(jnp.asarray([0.1, 1e8]), jnp.asarray(True)), jnp.asarray([0.3, 0.7]), 1.0)
    np.testing.assert_array_equal(memory.value, np.asarray([0.3, 0.7], np.float32))


@pytest.mark.usefixtures("x64")
def test_a_trail_is_the_average_of_where_it_was():
    points = np.random.default_rng(0).normal(size=(6, 3))
    betas, average, trail = [0.3, 1.0, 0.2, 0.7, 0.5], points[0], Trail.start(points[0])
    for w, new, beta in zip(points, points[1:], betas, strict=False):
        average = (1 - beta) * average + beta * w
        np.testing.assert_allclose(trail.average(w, beta), average, rtol=1e-12)
        trail = trail.moved(w, new, beta)
        np.testing.assert_allclose(trail.lag, average - new, rtol=1e-12)


AVERAGING = {
    "0.3": lambda rng: np.full(ITERATIONS, 0.3),
    "0.01": lambda rng: np.full(ITERATIONS, 0.01),
    "0.001": lambda rng: np.full(ITERATIONS, 0.001),
    "1": lambda rng: np.ones(ITERATIONS),
    "varying": lambda rng: 10 ** rng.uniform(-3, 0, ITERATIONS),
    "varying, sometimes 1": lambda rng: np.where(
        rng.random(ITERATIONS) < 0.01, 1.0, rng.uniform(0.01, 0.3, ITERATIONS)
    ),
}


@pytest.mark.parametrize("name", AVERAGING)
def test_lazy_memories_equal_eager_ones(name):
    """Every memory after every iteration, in float32, against wang's (v2) in float64."""
    rng = np.random.default_rng(0)
    betas = AVERAGING[name](rng).astype(np.float32)
    steps = rng.normal(size=(ITERATIONS, SIZE)) * 0.1 / np.sqrt(1 + np.arange(ITERATIONS))[:, None]
    path = np.cumsum(np.concatenate([rng.normal(size=(1, SIZE)), steps]), axis=0).astype(np.float32)
    drawn = np.array([rng.choice(TASKS, DRAWN, replace=False) for _ in range(ITERATIONS)])
    towards = (0.3 * rng.normal(size=(ITERATIONS, DRAWN, SIZE))).astype(np.float32)
    correction = TASKS / DRAWN

    def iteration(carry, now):
        trail, decay, memories = carry
        w, new, beta, who, push = now
        average, decay = trail.average(w, beta), decay.by(beta)
        own = jax.tree.map(lambda leaf: leaf[who], memories)
        own = jax.vmap(lambda memory, p: refreshed(memory, decay, beta * correction * p))(own, push)
        memories = jax.tree.map(lambda leaf, rows: leaf.at[who].set(rows), memories, own)
        values = jax.vmap(lambda memory: recall(memory, average, decay))(memories)
        return (trail.moved(w, new, beta), decay, memories), (values, decay.epoch)

    none = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (TASKS, *leaf.shape)), LazyMemory.none(path[0]))
    start = (Trail.start(path[0]), Decay.none(), none)
    (_, _, memories), (lazy, epochs) = jax.jit(lambda *now: jax.lax.scan(iteration, start, now))(
        path[:-1], path[1:], betas, drawn, towards
    )
    assert memories.offset.dtype == jnp.float32

    eager, worst = np.repeat(path[:1], TASKS, axis=0).astype(np.float64), 0.0
    for t, beta in enumerate(betas.astype(np.float64)):
        eager = (1 - beta) * eager + beta * path[t].astype(np.float64)
        eager[drawn[t]] += beta * correction * towards[t]
        worst = max(worst, np.abs(lazy[t] - eager).max() / np.abs(eager).max())
    assert worst < 1e-6
    # The longest way a factor can go, from one epoch to the next and beyond, has been gone.
    assert name == "0.001" or int(epochs[-1]) >= 1
