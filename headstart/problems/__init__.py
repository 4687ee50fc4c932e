"""What is minimised."""

from headstart.problems.compositional import CompositionalProblem
from headstart.problems.problem import CustomProblem, Problem
from headstart.problems.prototypes import Prototyped, Prototypes
from headstart.problems.supervised import Classification, Examples, Regression, SupervisedTask, problem_for

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
    "problem_for",
]
