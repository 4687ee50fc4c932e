"""Bundled networks, and adapters for a user's own."""

from collections.abc import Callable

from headstart.models.adapters import EquinoxModel, LinenModel, NNXModel, PairModel
from headstart.models.conv import CNN, Conv, ConvBlock, ConvNet
from headstart.models.mlp import ACTIVATIONS, MLP, Dense, Linear, Perceptron
from headstart.models.model import Model
from headstart.models.recurrent import Recurrent, RecurrentLayer, RecurrentNet
from headstart.models.resnet import ResidualBlock, ResidualNet, ResNet

MODELS: dict[str, Callable[..., Model]] = {
    "cnn": CNN,
    "conv": Conv,
    "linear": Linear,
    "mlp": MLP,
    "recurrent": Recurrent,
    "resnet": ResNet,
}
"""Every network a configuration can ask for, by name."""

__all__ = [
    "ACTIVATIONS",
    "CNN",
    "MLP",
    "MODELS",
    "Conv",
    "ConvBlock",
    "ConvNet",
    "Dense",
    "EquinoxModel",
    "Linear",
    "LinenModel",
    "Model",
    "NNXModel",
    "PairModel",
    "Perceptron",
    "Recurrent",
    "RecurrentLayer",
    "RecurrentNet",
    "ResNet",
    "ResidualBlock",
    "ResidualNet",
]
