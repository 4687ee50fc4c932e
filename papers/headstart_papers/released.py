"""What the papers' released code computes and no text describes: for comparison, not in the catalogue of methods."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from headstart.algorithms import ALGORITHMS, LocalMOML
from headstart.core import Algorithm, Batch

__all__ = ["METHODS", "PaperMethod", "as_stored"]

BRIGHTEST = 255.0


class PaperMethod(NamedTuple):
    """A method that a record may name: what builds it, and with which arguments that no record can write down."""

    build: Callable[..., Algorithm]
    given: Mapping[str, Any] = MappingProxyType({})


def as_stored(batch: Batch) -> Batch:
    """Inputs in 0 .. 255 instead of 0 .. 1.

    The code released for wang's Table 5 divides by 255 where it draws :math:`S_1`, :math:`S_2` and :math:`S_3`, and not
    where it draws :math:`S_0`. The restarted memory is then far away from the shared model, and so are the points at
    which a round's first gradients are taken.
    """
    return batch._replace(x=batch.x * BRIGHTEST)


METHODS: dict[str, PaperMethod] = {
    **{name: PaperMethod(entry.build) for name, entry in ALGORITHMS.items()},
    "local-moml-unscaled": PaperMethod(LocalMOML, {"restart_view": as_stored}),
}
"""Every method that a record may name."""
