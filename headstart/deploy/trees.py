"""Pytrees as named arrays, and back again once every name, shape, type and value has been looked at."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.deploy.messages import Fault

__all__ = ["WrongArrays", "below", "by_client", "from_arrays", "length", "refuse_infinite", "to_arrays"]


class WrongArrays(ValueError):
    """Arrays that are not those asked for."""

    def __init__(self, fault: Fault):
        self.fault = fault
        super().__init__(str(fault))


def to_arrays(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """Every leaf by the prefix and its path."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(tree))
    # A plain number is of the type that it has in a compiled program.
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf, jnp.result_type(leaf)) for path, leaf in leaves}


def below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Those arrays whose names begin so."""
    return {name: array for name, array in arrays.items() if name.startswith(prefix)}


def by_client(arrays: Mapping[str, np.ndarray], clients: Iterable[int]) -> dict[int, dict[str, np.ndarray]]:
    """Arrays that are named ``client/...``, of these clients and no others."""
    found: dict[str, dict[str, np.ndarray]] = {str(client): {} for client in clients}
    for name, array in arrays.items():
        client = name.partition("/")[0]
        if client not in found:
            raise WrongArrays(Fault("arrays", f"{_short(name)} was not asked for"))
        found[client][name] = array
    return {int(client): own for client, own in found.items()}


def from_arrays(arrays: Mapping[str, np.ndarray], like: Any, prefix: str) -> Any:
    """The tree whose leaves these are, in NumPy arrays; ``like`` has its structure, shapes and types."""
    wanted = {
        prefix + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(like)
    }  # fmt: skip
    if differing := sorted(arrays.keys() ^ wanted.keys()):
        what = "is missing" if differing[0] in wanted else "was not asked for"
        raise WrongArrays(Fault("arrays", f"{_short(differing[0])} {what}"))
    for name, leaf in wanted.items():
        got, shape, dtype = arrays[name], jnp.shape(leaf), jnp.result_type(leaf)
        if got.shape != shape or got.dtype != dtype:
            raise WrongArrays(Fault("arrays", f"{name} is {got.dtype}{got.shape}, not {dtype}{shape}"))
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


def refuse_infinite(tree: Any) -> None:
    """Raise if a number of a tree is infinite or NaN."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        values = np.asarray(leaf)
        if jnp.issubdtype(values.dtype, jnp.inexact) and not np.isfinite(_in_float(values)).all():
            raise WrongArrays(Fault("not finite", f"{jax.tree_util.keystr(path)} holds a NaN or an infinity"))


def length(tree: Any) -> float:
    """The Euclidean norm of all leaves together."""
    leaves = [_in_float(np.asarray(leaf)).astype(np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    return math.sqrt(sum(float(values @ values) for values in leaves))


def _in_float(values: np.ndarray) -> np.ndarray:
    return values if values.dtype.isbuiltin == 1 else values.astype(np.float32)


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."
