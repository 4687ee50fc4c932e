"""The papers' experiments run again: records of what they report, runs, verdicts and reports."""

from headstart.reproduce.pool import Failure, Watcher, run_all
from headstart.reproduce.reading import find_experiments, papers_folder
from headstart.reproduce.record import PaperExperiment, Unit
from headstart.reproduce.store import Store
from headstart.reproduce.unit import run_unit

__all__ = [
    "Failure",
    "PaperExperiment",
    "Store",
    "Unit",
    "Watcher",
    "find_experiments",
    "papers_folder",
    "run_all",
    "run_unit",
]
