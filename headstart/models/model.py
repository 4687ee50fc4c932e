"""A model as the rest of the package sees it: fresh parameters, and a pure function of them."""

from abc import ABC, abstractmethod

from jax import Array

from headstart.core import Params

__all__ = ["Model"]


class Model(ABC):
    """A network. Subclasses are frozen dataclasses: equal models share compiled programs."""

    random: bool = False
    """Whether outputs depend on a key in training, as they do with dropout."""

    @property
    def mixes_rows(self) -> bool:
        """Whether the outputs for a row depend on the other rows of its batch, as they do with batch normalisation."""
        return False

    @abstractmethod
    def init(self, key: Array) -> Params:
        """Fresh parameters."""

    @abstractmethod
    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        """The outputs for a batch of inputs; with a key as in training, without one nothing is random.

        Only a model that is ``random`` is ever given a key: others need not have the argument.
        """
