"""Experiments: what is trained on what and how, their defaults, their plans, their runs and the record of a run."""

from headstart.experiment.defaults import fitted
from headstart.experiment.experiment import Experiment, PlannedExperiment, TunedExperiment, resume
from headstart.experiment.record import MethodRecord, RunDirectory, RunRecord, load_run
from headstart.experiment.running import Callbacks, RunResult
from headstart.experiment.settings import Settings, Training
from headstart.experiment.tables import data_section, partition_of, read_tables, with_settings
from headstart.experiment.tuning import Tuned

__all__ = [
    "Callbacks",
    "Experiment",
    "MethodRecord",
    "PlannedExperiment",
    "RunDirectory",
    "RunRecord",
    "RunResult",
    "Settings",
    "Training",
    "Tuned",
    "TunedExperiment",
    "data_section",
    "fitted",
    "load_run",
    "partition_of",
    "read_tables",
    "resume",
    "with_settings",
]
