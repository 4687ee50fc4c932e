"""An update as arrays by name, for drivers that truly send it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["Payload", "from_payload", "leaf_names", "to_payload"]

Payload = dict[str, Array]


def leaf_names(tree: Any, prefix: str) -> list[str]:
    """A name for each leaf, from where it is in the tree."""
    return [prefix + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def to_payload(tree: Any, prefix: str) -> Payload:
    """The leaves by name."""
    return dict(zip(leaf_names(tree, prefix), map(jnp.asarray, jax.tree.leaves(tree)), strict=True))


def from_payload(payload: Mapping[str, Any], like: Any, prefix: str) -> Any:
    """The tree whose leaves these are; ``like`` has its structure."""
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(payload[n]) for n in leaf_names(like, prefix)])
