"""Where every random number comes from: one key per purpose, round and client, and nothing else.

A draw depends on (seed, purpose, round, client) only, never on the order of a cohort, the number of
devices, the length of a compiled chunk or where a run was resumed.
"""

from enum import IntEnum
from typing import NamedTuple

import jax
from jax import Array

__all__ = ["Keys", "Purpose", "client_key", "episode_key", "round_key", "run_key"]


class Purpose(IntEnum):
    """What a key is for. The numbers are part of a run's identity: append, never renumber."""

    INIT = 0
    COHORT = 1
    CLIENT = 2
    SERVER = 3
    EVALUATE = 4
    DATA = 5
    REFRESH_COHORT = 6
    REFRESH = 7
    WIRE = 8


def run_key(seed: int, purpose: Purpose) -> Array:
    """The key of one purpose in the run with this seed."""
    return jax.random.fold_in(jax.random.key(seed), int(purpose))


def round_key(key: Array, round_: Array | int) -> Array:
    """The key of one round."""
    return jax.random.fold_in(key, round_)


def client_key(key: Array, client: Array | int) -> Array:
    """The key of one client in a round."""
    return jax.random.fold_in(key, client)


EPISODE = 0x65706973
"""Far from every number of a local step or of a batch: ``fold_in(key, i)`` is also what ``split`` gives as its i-th."""


def episode_key(key: Array) -> Array:
    """The key that chooses the task of a local step whose batches are drawn with ``key``."""
    return jax.random.fold_in(key, EPISODE)


class Keys(NamedTuple):
    """The keys of a run, from which every round derives its own."""

    cohort: Array
    client: Array
    server: Array
    refresh_cohort: Array
    refresh: Array
    wire: Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """The keys of the run with this seed."""
        return cls(
            cohort=run_key(seed, Purpose.COHORT),
            client=run_key(seed, Purpose.CLIENT),
            server=run_key(seed, Purpose.SERVER),
            refresh_cohort=run_key(seed, Purpose.REFRESH_COHORT),
            refresh=run_key(seed, Purpose.REFRESH),
            wire=run_key(seed, Purpose.WIRE),
        )
