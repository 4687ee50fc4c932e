"""Statistics of comparisons: intervals, paired tests, corrections for many of them, ranks. Arrays in, numbers out."""

from headstart.statistics.intervals import LEVEL, Association, Interval, association, mean_interval
from headstart.statistics.paired import PairedTest, holm, paired_test
from headstart.statistics.ranks import Ranking, rank_methods

__all__ = [
    "LEVEL",
    "Association",
    "Interval",
    "PairedTest",
    "Ranking",
    "association",
    "holm",
    "mean_interval",
    "paired_test",
    "rank_methods",
]
