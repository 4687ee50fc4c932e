"""What lies where: arrays of every host beside each other as one, and what the hosts have in common on all of them."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from headstart.hosts import Crew
from headstart.simulate.hosted.chunk import HOST_AXIS
from headstart.simulate.rounds import CLIENT_AXIS

__all__ = ["beside", "common", "here", "hosts_mesh", "of_equal_shapes", "owned", "pack", "unpack"]

T = TypeVar("T")


def hosts_mesh(crew: Crew, devices: int) -> Mesh:
    """The first ``devices`` devices of every host, one row per host."""
    rows = [[d for d in jax.devices() if d.process_index == host][:devices] for host in range(crew.count)]
    return Mesh(np.array(rows), (HOST_AXIS, CLIENT_AXIS), axis_types=(AxisType.Auto, AxisType.Auto))


def beside(mesh: Mesh, own: T) -> T:
    """Every host's arrays, of equal shapes, along a leading axis of hosts."""
    sharding = NamedSharding(mesh, PartitionSpec(HOST_AXIS))

    def place(leaf: Any) -> jax.Array:
        local = np.asarray(leaf)[None]
        whole = (mesh.shape[HOST_AXIS], *local.shape[1:])
        return jax.make_array_from_callback(whole, sharding, lambda _: local)

    placed: T = jax.tree.map(place, own)
    return placed


def common(mesh: Mesh, same: T) -> T:
    """Arrays that are the same on all hosts, on all devices."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def place(leaf: Any) -> jax.Array:
        local = np.asarray(leaf)
        return jax.make_array_from_callback(local.shape, sharding, lambda _: local)

    placed: T = jax.tree.map(place, same)
    return placed


@jax.jit
def owned(placed: T) -> T:
    """Copies where they lie, for a program that is given their buffers: JAX may have taken NumPy's own memory."""
    copied: T = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), placed)
    return copied


def here(placed: T) -> T:
    """What a device of this host has of some arrays."""
    local: T = jax.tree.map(lambda leaf: leaf.addressable_data(0), placed)
    return local


def of_equal_shapes(crew: Crew, own: T) -> T:
    """Arrays filled up, so that those of all hosts are as long as the longest, with what they end with.

    Lists of where things begin so go on with their last number; rows beyond a host's own are never met.
    """
    lengths = np.array([leaf.shape[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(own)], np.int64)
    most = np.max([np.frombuffer(each, np.int64) for each in crew.exchange(lengths.tobytes())], axis=0)

    def fill(leaf: Any, length: int) -> Any:
        if not np.ndim(leaf) or leaf.shape[0] == length:
            return leaf
        leaf = np.asarray(leaf)
        return np.pad(leaf, [(0, length - leaf.shape[0]), *[(0, 0)] * (leaf.ndim - 1)], mode="edge")

    leaves = [fill(leaf, int(length)) for leaf, length in zip(jax.tree.leaves(own), most, strict=True)]
    filled: T = jax.tree.unflatten(jax.tree.structure(own), leaves)
    return filled


def pack(arrays: Any) -> bytes:
    """A pytree's arrays as bytes, for whoever knows their shapes."""
    return b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(arrays))


def unpack(packed: bytes, like: T) -> T:
    """A pytree's arrays from their bytes, in the shapes and types of ``like``."""
    leaves, offset = [], 0
    for leaf in jax.tree.leaves(like):
        size = int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
        leaves.append(np.frombuffer(packed, leaf.dtype, count=size // leaf.dtype.itemsize, offset=offset)
                      .reshape(leaf.shape).copy())  # fmt: skip
        offset += size
    found: T = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return found
