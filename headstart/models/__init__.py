"""Bundled networks, and adapters for a user's own."""

from headstart.models.adapters import EquinoxModel, NNXModel
from headstart.models.mlp import ACTIVATIONS, MLP, Dense, Perceptron
from headstart.models.model import Model

__all__ = ["ACTIVATIONS", "MLP", "Dense", "EquinoxModel", "Model", "NNXModel", "Perceptron"]
