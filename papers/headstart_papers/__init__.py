"""The papers' experiments run again with headstart: records of what they report, runs, verdicts and reports.

`reproduce` is the command ``headstart reproduce``; the records are the TOML files beside this package.
"""

from headstart_papers.pool import Failure, Watcher, run_all
from headstart_papers.reading import find_experiments, papers_folder
from headstart_papers.record import PaperExperiment, Unit
from headstart_papers.reproducing import Reproduction, check_pages, reproduce
from headstart_papers.store import Store
from headstart_papers.unit import run_unit

__all__ = [
    "Failure",
    "PaperExperiment",
    "Reproduction",
    "Store",
    "Unit",
    "Watcher",
    "check_pages",
    "find_experiments",
    "papers_folder",
    "reproduce",
    "run_all",
    "run_unit",
]
