"""A model as the rest of the package sees it: fresh parameters, and a pure function of them."""

from abc import ABC, abstractmethod

from jax import Array

from headstart.core import Params

__all__ = ["Model"]


class Model(ABC):
    """A network. Subclasses are frozen dataclasses: equal models share compiled programs."""

    @abstractmethod
    def init(self, key: Array) -> Params:
        """Fresh parameters."""

    @abstractmethod
    def apply(self, params: Params, x: Array) -> Array:
        """The outputs for a batch of inputs."""
