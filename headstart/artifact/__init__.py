"""The model file: a trained model that can be used without the training code or the data, and is safe to open."""

from headstart.artifact.adapting import AdaptationReport
from headstart.artifact.predictor import Predictor, load, read_card, stored_params
from headstart.artifact.saving import trained_model

__all__ = ["AdaptationReport", "Predictor", "load", "read_card", "stored_params", "trained_model"]
