"""What is minimised."""

from headstart.problems.problem import CustomProblem, Problem
from headstart.problems.supervised import Classification, Examples, Regression, SupervisedTask, problem_for

__all__ = ["Classification", "CustomProblem", "Examples", "Problem", "Regression", "SupervisedTask", "problem_for"]
