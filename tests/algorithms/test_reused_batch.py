"""A client's round whose local steps all look at the same samples, against the same steps in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms import LocalMOML, MetaFL, PFedMe
from headstart.core import BatchSizes, tree
from tests import toy
from tests.algorithms.reference import exact, gradient, moreau_point

pytestmark = pytest.mark.usefixtures("x64")

TAU, ALPHA, ETA, BETA, SIZE = 3, 0.4, 0.3, 0.6, 2
LOCAL = {"outer_lr": ETA, "local_steps": TAU, "batch_size": SIZE, "inner_lr": ALPHA}


def view():
    return toy.federation().clients.view("train", jnp.asarray(1))


class Draws:
    """What a client draws in a round in which it has a key."""

    def __init__(self, key):
        self.key = key

    def episode(self, nu):
        """The batches of the first local step: ``nu`` inner ones, ``nu`` for curvature, an outer one."""
        draw = jax.jit(lambda key: BatchSizes(SIZE).draw(view(), key, nu, looks_at="own"))
        drawn = toy.to_numpy(draw(jax.random.fold_in(self.key, 0)))

        def split(batches):
            return list(zip(batches.x, batches.y, strict=True))

        return split(drawn.inner), split(drawn.curvature), (drawn.outer.x, drawn.outer.y)

    def batch(self, step):
        batch = toy.to_numpy(view().sample(jax.random.fold_in(self.key, step), SIZE))
        return batch.x, batch.y


def meta_fl(w, draws):
    inner, curvature, outer = draws.episode(2)
    for _ in range(TAU):
        points, u = [], w
        for batch in inner:
            points.append(u)
            u = u - ALPHA * gradient(u, batch)
        v = gradient(u, outer)
        for point, batch in zip(reversed(points), reversed(curvature), strict=True):
            v = v - ALPHA * exact(point, batch, v)
        w = w - ETA * v
    return w


def local_moml(w, draws):
    (inner,), (curvature,), outer = draws.episode(1)
    u = w - ALPHA * gradient(w, draws.batch(TAU))
    for _ in range(TAU):
        u = (1 - BETA) * u + BETA * (w - ALPHA * gradient(w, inner))
        v = gradient(u, outer)
        w = w - ETA * (v - ALPHA * exact(w, curvature, v))
    return w


def pfedme(w, draws):
    for _ in range(TAU):
        theta, _ = moreau_point(w, draws.batch(0), penalty=1.5, inner_lr=ALPHA, inner_steps=2)
        w = w - ETA * 1.5 * (w - theta)
    return w


METHODS = {
    "meta-fl": (MetaFL, {"inner_steps": 2}, meta_fl),
    "local-moml": (LocalMOML, {"averaging": BETA}, local_moml),
    "pfedme": (PFedMe, {"penalty": 1.5, "inner_steps": 2}, pfedme),
}


@jax.jit
def sent(algorithm, key):
    """The model at which a client of the method arrives."""
    down = algorithm.broadcast(algorithm.init_server(toy.start()), jax.random.key(0))
    up = algorithm.client_update(toy.logistic_loss, down, (), view(), key).up
    return tree.add(toy.start(), up.moved if isinstance(algorithm, MetaFL) else up)


@pytest.mark.parametrize("name", METHODS)
def test_all_steps_of_a_round_look_at_one_draw_where_that_is_asked_for(name):
    build, own, client = METHODS[name]
    key = jax.random.key(7)
    reused, fresh = (toy.flat(sent(build(**LOCAL, **own, **option), key)) for option in ({"reuse_batch": True}, {}))
    np.testing.assert_allclose(reused, client(toy.flat(toy.start()), Draws(key)), rtol=1e-8)
    assert np.abs(reused - fresh).max() > 1e-2


def test_a_step_on_several_tasks_counts_its_batches_once():
    options = {"batch_size": 4, "memory_batch_size": 3, "tasks_per_client": 5, "tasks_per_step": 2, "local_steps": 7}
    fresh, reused = LocalMOML(**options).cost(), LocalMOML(reuse_batch=True, **options).cost()
    assert fresh.batches == {4: 7 * 2 * 3, 3: 5}
    assert reused.batches == {4: 2 * 3, 3: 5}
    assert (reused.gradients, reused.products) == (fresh.gradients, fresh.products)
