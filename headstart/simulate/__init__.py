"""The simulator: rounds, evaluation and training."""

from headstart.simulate.callbacks import Callback, EarlyStopping, Evaluated, Progress
from headstart.simulate.ensemble import Ensemble
from headstart.simulate.evaluate import Evaluation, score_client, summarize, summarized_metrics
from headstart.simulate.journal import FolderJournal, Journal
from headstart.simulate.rounds import Backend, RoundPlan, RunState, trace_count
from headstart.simulate.setting import check
from headstart.simulate.simulation import Simulation
from headstart.simulate.sweep import Scores, Sweep, sweep
from headstart.simulate.train import Result, train

__all__ = [
    "Backend",
    "Callback",
    "EarlyStopping",
    "Ensemble",
    "Evaluated",
    "Evaluation",
    "FolderJournal",
    "Journal",
    "Progress",
    "Result",
    "RoundPlan",
    "RunState",
    "Scores",
    "Simulation",
    "Sweep",
    "check",
    "score_client",
    "summarize",
    "summarized_metrics",
    "sweep",
    "trace_count",
    "train",
]
