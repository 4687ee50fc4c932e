"""Bundled networks, and adapters for a user's own."""

from collections.abc import Callable

from headstart.models.adapters import EquinoxModel, NNXModel
from headstart.models.mlp import ACTIVATIONS, MLP, Dense, Perceptron
from headstart.models.model import Model

MODELS: dict[str, Callable[..., Model]] = {"mlp": MLP}
"""Every network a configuration can ask for, by name."""

__all__ = ["ACTIVATIONS", "MLP", "MODELS", "Dense", "EquinoxModel", "Model", "NNXModel", "Perceptron"]
