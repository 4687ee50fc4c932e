"""What is minimised."""

from headstart.problems.compositional import CompositionalProblem
from headstart.problems.problem import CustomProblem, Problem
from headstart.problems.prototypes import Prototyped, Prototypes
from headstart.problems.supervised import Classification, Examples, Regression, SupervisedTask, problem_for
from headstart.problems.waves import Waves, WaveSamples

__all__ = [
    "Classification",
    "CompositionalProblem",
    "CustomProblem",
    "Examples",
    "Problem",
    "Prototyped",
    "Prototypes",
    "Regression",
    "SupervisedTask",
    "WaveSamples",
    "Waves",
    "problem_for",
]
