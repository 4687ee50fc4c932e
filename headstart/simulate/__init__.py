"""The simulator: rounds, evaluation, training, and its record."""

from headstart.simulate.evaluate import Evaluation, summarize
from headstart.simulate.rounds import Backend, RoundPlan, RunState, trace_count
from headstart.simulate.train import Journal, Progress, Result, Simulation, train

__all__ = [
    "Backend",
    "Evaluation",
    "Journal",
    "Progress",
    "Result",
    "RoundPlan",
    "RunState",
    "Simulation",
    "summarize",
    "trace_count",
    "train",
]
