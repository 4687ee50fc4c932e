"""Where every random number comes from: one key a purpose, a round and a client, and nothing else.

A draw depends on (seed, purpose, round, client) only, never on the order of a cohort, the number of
devices, the length of a compiled chunk or where a run was resumed.
"""

from enum import IntEnum

import jax
from jax import Array

__all__ = ["Purpose", "client_key", "round_key", "run_key"]


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


def run_key(seed: int, purpose: Purpose) -> Array:
    """The key of one purpose in the run with this seed."""
    return jax.random.fold_in(jax.random.key(seed), int(purpose))


def round_key(key: Array, round_: Array | int) -> Array:
    """The key of one round."""
    return jax.random.fold_in(key, round_)


def client_key(key: Array, client: Array | int) -> Array:
    """The key of one client in a round."""
    return jax.random.fold_in(key, client)
