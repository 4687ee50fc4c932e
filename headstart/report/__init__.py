"""Tables and plots, from run records only."""

from headstart.report.comparison import comparison_table, method_title
from headstart.report.plot import plot_run

__all__ = ["comparison_table", "method_title", "plot_run"]
