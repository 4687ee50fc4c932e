"""Tables and plots, from run records, summaries of partitions, and plans."""

from headstart.report.comparison import comparison_table, method_title
from headstart.report.partition import partition_table, plot_partition
from headstart.report.plot import plot_run
from headstart.report.samples import plot_samples, samples_table
from headstart.report.theory import bounds_table, estimates_table, plans_table, plot_bound

__all__ = [
    "bounds_table",
    "comparison_table",
    "estimates_table",
    "method_title",
    "partition_table",
    "plans_table",
    "plot_bound",
    "plot_partition",
    "plot_run",
    "plot_samples",
    "samples_table",
]
