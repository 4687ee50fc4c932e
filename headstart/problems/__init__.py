"""What is minimised."""

from headstart.problems.problem import CustomProblem, Problem
from headstart.problems.supervised import Classification, Examples, Regression

__all__ = ["Classification", "CustomProblem", "Examples", "Problem", "Regression"]
