"""Methods side by side at equal budgets: several seeds of each in one program, and what the differences are worth."""

from headstart.comparisons.budget import Budget, Spent, per_round
from headstart.comparisons.choosing import experiment_of
from headstart.comparisons.comparing import compare
from headstart.comparisons.entries import Comparison, Entry, Pair
from headstart.comparisons.files import load_comparison, save_comparison
from headstart.comparisons.recorded import compare_runs

__all__ = [
    "Budget",
    "Comparison",
    "Entry",
    "Pair",
    "Spent",
    "compare",
    "compare_runs",
    "experiment_of",
    "load_comparison",
    "per_round",
    "save_comparison",
]
