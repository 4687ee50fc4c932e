"""The simulator: rounds, evaluation, training, and its record."""

from headstart.simulate.evaluate import Evaluation, summarize
from headstart.simulate.record import RunDirectory, RunRecord, load_run
from headstart.simulate.rounds import Backend, RoundPlan, RunState, trace_count
from headstart.simulate.simulation import Simulation, check
from headstart.simulate.sweep import Scores, Sweep, sweep
from headstart.simulate.train import Journal, Progress, Result, train

__all__ = [
    "Backend",
    "Evaluation",
    "Journal",
    "Progress",
    "Result",
    "RoundPlan",
    "RunDirectory",
    "RunRecord",
    "RunState",
    "Scores",
    "Simulation",
    "Sweep",
    "check",
    "load_run",
    "summarize",
    "sweep",
    "trace_count",
    "train",
]
