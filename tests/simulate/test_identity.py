import subprocess
import sys
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.errors import UsageError
from headstart.simulate.identity import BLOCK_BYTES, MAPPED_BYTES, data_digest, digest, refuse_another
from tests import toy

IMPORTS = "import headstart as hs; from headstart.simulate.identity import digest"


def scaled(factor):
    return lambda x: factor * x


def itself():
    def function():
        return function

    return function


class Plain:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ("1", 1),
        ([1, 2], (1, 2)),
        ([[1], 2], [1, [2]]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(3), np.zeros(3, np.float32)),
        (jnp.arange(3), jnp.arange(3).at[0].set(9)),
        (jax.random.key(0), jax.random.key(1)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x + 1, lambda x: x - 1),
        (scaled(2.0), scaled(3.0)),
        (partial(scaled, 1), partial(scaled, 2)),
        (jax.jit(scaled(2.0)), jax.jit(scaled(3.0))),
        (Plain(1), Plain(2)),
        (hs.fedavg(outer_lr=0.1), hs.fedavg(outer_lr=0.2)),
        (hs.fedavg(local_steps=1), hs.fedavg(local_steps=2)),
        (hs.maml(curvature=hs.Exact()), hs.maml(curvature=hs.FirstOrder())),
        (hs.MLP(inputs=1, outputs=1, hidden=(4,)), hs.MLP(inputs=1, outputs=1, hidden=(5,))),
    ],
)
def test_what_differs_has_another_digest(one, other):
    assert digest(one) != digest(other)


def test_equal_things_have_the_same_digest():
    for make in (lambda: scaled(2.0), itself, lambda: Plain([1]), lambda: {"a": {3, 4}}, lambda: jnp.ones(3)):
        assert digest(make()) == digest(make())
    assert digest(np.asfortranarray(np.eye(3)[:, :2])) == digest(np.eye(3)[:, :2].copy())


def test_another_process_finds_the_same():
    make = "hs.per_fedavg(inner_lr=0.1, curvature=hs.HessianFree()), hs.data.sine(clients=3, held_out=1).clients.draw"
    told = subprocess.run(
        [sys.executable, "-c", f"{IMPORTS}; print(digest(({make})))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == digest(eval(make))


def test_a_federation_is_told_from_one_with_another_sample_name_or_split():
    federation = toy.federation()
    assert data_digest(federation) == data_digest(toy.federation())
    spoilt = eqx.tree_at(lambda clients: clients.pool.x, federation.clients, federation.clients.pool.x.at[7, 1].add(1))
    for other in (
        replace(federation, clients=spoilt),
        toy.federation(held_out=1),
        toy.federation(names=list("abcde")),
        toy.federation(sizes=(5, 9, 6, 8, 7)),
    ):
        assert data_digest(other) != data_digest(federation)


def test_of_a_large_mapped_array_parts_are_read(tmp_path):
    path, rows = tmp_path / "x.npy", MAPPED_BYTES // BLOCK_BYTES * 2
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, BLOCK_BYTES))
    before = digest(np.load(path, mmap_mode="r"))
    for row in (0, rows - 1):
        array[row] += 1
        array.flush()
        assert (before := digest(np.load(path, mmap_mode="r"))) != digest(np.zeros(1))
    array[0, 0] += 1
    array.flush()
    assert digest(np.load(path, mmap_mode="r")) != before


def test_what_differs_is_named():
    refuse_another({"data": "a", "seed": "b"}, {"seed": "b", "data": "a"}, "here")
    with pytest.raises(UsageError, match=r"here was left by another run: it differs in data, seed\."):
        refuse_another({"data": "a", "seed": "b"}, {"data": "c"}, "here")
