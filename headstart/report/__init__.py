"""Tables and plots, from run records and summaries of partitions only."""

from headstart.report.comparison import comparison_table, method_title
from headstart.report.partition import partition_table, plot_partition
from headstart.report.plot import plot_run
from headstart.report.samples import plot_samples, samples_table

__all__ = [
    "comparison_table",
    "method_title",
    "partition_table",
    "plot_partition",
    "plot_run",
    "plot_samples",
    "samples_table",
]
