"""Settings by themselves: where to look, by whom to choose, and successive halving of many as one program."""

from headstart.tuning.budget import SETTINGS, run_cost, rungs
from headstart.tuning.choosing import Score, choosers, headline, score_of_table
from headstart.tuning.contest import Contest, Found, SearchStopped, Told
from headstart.tuning.gathering import in_memory
from headstart.tuning.halving import search
from headstart.tuning.ranges import Range, grid, ranges_of, searched_settings, spread, trains_without_adapting
from headstart.tuning.smoothness import smoothness

__all__ = [
    "SETTINGS",
    "Contest",
    "Found",
    "Range",
    "Score",
    "SearchStopped",
    "Told",
    "choosers",
    "grid",
    "headline",
    "in_memory",
    "ranges_of",
    "run_cost",
    "rungs",
    "score_of_table",
    "search",
    "searched_settings",
    "smoothness",
    "spread",
    "trains_without_adapting",
]
