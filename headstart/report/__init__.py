"""Tables and plots, from run records, summaries of partitions, and plans."""

from headstart.report.algorithms import algorithms_table
from headstart.report.comparison import comparison_table, method_title
from headstart.report.data import named_data_table, show_data, show_partition
from headstart.report.federation import federation_table
from headstart.report.further import best_model, further_table
from headstart.report.naive import naive_note
from headstart.report.page import Report, Watch, comparison_report, make_report
from headstart.report.partition import partition_table, plot_partition
from headstart.report.plot import plot_run
from headstart.report.samples import plot_samples, samples_table
from headstart.report.speed import speed_page, speed_table
from headstart.report.theory import bounds_table, estimates_table, plans_table, plot_bound, plot_plan
from headstart.report.tracking import MLflow, TensorBoard, Tracking
from headstart.report.tuning import plot_tuning, tuning_table

__all__ = [
    "MLflow",
    "Report",
    "TensorBoard",
    "Tracking",
    "Watch",
    "algorithms_table",
    "best_model",
    "bounds_table",
    "comparison_report",
    "comparison_table",
    "estimates_table",
    "federation_table",
    "further_table",
    "make_report",
    "method_title",
    "naive_note",
    "named_data_table",
    "partition_table",
    "plans_table",
    "plot_bound",
    "plot_partition",
    "plot_plan",
    "plot_run",
    "plot_samples",
    "plot_tuning",
    "samples_table",
    "show_data",
    "show_partition",
    "speed_page",
    "speed_table",
    "tuning_table",
]
