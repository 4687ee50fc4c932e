"""Bundled networks, and adapters for a user's own."""

from collections.abc import Callable

from headstart.models.adapters import EquinoxModel, NNXModel
from headstart.models.conv import Conv, ConvBlock, ConvNet
from headstart.models.mlp import ACTIVATIONS, MLP, Dense, Perceptron
from headstart.models.model import Model

MODELS: dict[str, Callable[..., Model]] = {"conv": Conv, "mlp": MLP}
"""Every network a configuration can ask for, by name."""

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "MODELS",
    "Conv",
    "ConvBlock",
    "ConvNet",
    "Dense",
    "EquinoxModel",
    "Model",
    "NNXModel",
    "Perceptron",
]
