"""The small parts from which every algorithm is assembled; nothing here knows of data sets or simulation."""

from headstart.core.adaptation import Adaptation, Adapted
from headstart.core.algorithm import Algorithm, ClientResult, Cost, Down, RefreshingAlgorithm, Server
from headstart.core.batch import FULL, Batch, ClientSamples, Loss, Params, Sides, Size, Weighted, check_size, weighing
from headstart.core.cohort import Weighting, cohort_size, draw_cohort
from headstart.core.composition import (
    Composition,
    MeanComposition,
    MetaComposition,
    Objective,
    UserComposition,
    as_composition,
)
from headstart.core.curvature import CURVATURES, Curvature, Exact, FirstOrder, HessianFree, as_curvature
from headstart.core.episode import BatchSizes, Episode
from headstart.core.keys import Purpose, client_key, round_key, run_key
from headstart.core.local import LocalSteps, descend, step_keys
from headstart.core.memory import Decay, LazyMemory, Memory, Trail, recall, refreshed, remember
from headstart.core.schedule import SCHEDULES, Diminishing, Schedule, StepDecay, StepSize, check_step_size, step_size_at
from headstart.core.tasks import ClientTasks, draw_tasks

__all__ = [
    "CURVATURES",
    "FULL",
    "SCHEDULES",
    "Adaptation",
    "Adapted",
    "Algorithm",
    "Batch",
    "BatchSizes",
    "ClientResult",
    "ClientSamples",
    "ClientTasks",
    "Composition",
    "Cost",
    "Curvature",
    "Decay",
    "Diminishing",
    "Down",
    "Episode",
    "Exact",
    "FirstOrder",
    "HessianFree",
    "LazyMemory",
    "LocalSteps",
    "Loss",
    "MeanComposition",
    "Memory",
    "MetaComposition",
    "Objective",
    "Params",
    "Purpose",
    "RefreshingAlgorithm",
    "Schedule",
    "Server",
    "Sides",
    "Size",
    "StepDecay",
    "StepSize",
    "Trail",
    "UserComposition",
    "Weighted",
    "Weighting",
    "as_composition",
    "as_curvature",
    "check_size",
    "check_step_size",
    "client_key",
    "cohort_size",
    "descend",
    "draw_cohort",
    "draw_tasks",
    "recall",
    "refreshed",
    "remember",
    "round_key",
    "run_key",
    "step_keys",
    "step_size_at",
    "weighing",
]
