"""The small parts from which every algorithm is assembled; nothing here knows of data sets or simulation."""

from headstart.config import register
from headstart.core.adaptation import Adaptation, Adapted
from headstart.core.algorithm import Algorithm, ClientResult, Cost, Down, RefreshingAlgorithm, Server, TaskSlots
from headstart.core.batch import (
    FULL,
    Batch,
    ClientSamples,
    Keyed,
    KeyedSamples,
    Loss,
    Params,
    Sides,
    Size,
    Weighted,
    check_size,
    takes,
    weighing,
)
from headstart.core.cohort import Weighting, cohort_size, draw_cohort
from headstart.core.composition import (
    Composition,
    MeanComposition,
    MetaComposition,
    Objective,
    UserComposition,
    as_composition,
)
from headstart.core.convolution import with_canonical_convolutions
from headstart.core.cores import claim_cores
from headstart.core.curvature import (
    CURVATURES,
    Automatic,
    Curvature,
    Exact,
    FirstOrder,
    HessianFree,
    LooksAt,
    as_curvature,
    check_curvature_size,
)
from headstart.core.episode import BatchSizes, Episode
from headstart.core.keys import Keys, Purpose, client_key, episode_key, round_key, run_key
from headstart.core.local import LocalSteps, descend, step_keys
from headstart.core.memory import Decay, LazyMemory, Memory, Trail, recall, refreshed, remember
from headstart.core.optimizer import OPTIMIZERS, ClientOptimizer, Optimizer, WithOptimizer, as_optimizer, server_step
from headstart.core.round import Channel, Phase, Round, RoundAt, Start, Wired
from headstart.core.schedule import (
    SCHEDULES,
    Diminishing,
    Schedule,
    StepDecay,
    StepSize,
    as_step_size,
    check_step_size,
    step_size_at,
)
from headstart.core.shapes import ShapedSamples, Shapes
from headstart.core.tasks import ClientTasks, draw_tasks

__all__ = [
    "CURVATURES",
    "FULL",
    "OPTIMIZERS",
    "SCHEDULES",
    "Adaptation",
    "Adapted",
    "Algorithm",
    "Automatic",
    "Batch",
    "BatchSizes",
    "Channel",
    "ClientOptimizer",
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
    "Keyed",
    "KeyedSamples",
    "Keys",
    "LazyMemory",
    "LocalSteps",
    "LooksAt",
    "Loss",
    "MeanComposition",
    "Memory",
    "MetaComposition",
    "Objective",
    "Optimizer",
    "Params",
    "Phase",
    "Purpose",
    "RefreshingAlgorithm",
    "Round",
    "RoundAt",
    "Schedule",
    "Server",
    "ShapedSamples",
    "Shapes",
    "Sides",
    "Size",
    "Start",
    "StepDecay",
    "StepSize",
    "TaskSlots",
    "Trail",
    "UserComposition",
    "Weighted",
    "Weighting",
    "Wired",
    "WithOptimizer",
    "as_composition",
    "as_curvature",
    "as_optimizer",
    "as_step_size",
    "check_curvature_size",
    "check_size",
    "check_step_size",
    "client_key",
    "cohort_size",
    "descend",
    "draw_cohort",
    "draw_tasks",
    "episode_key",
    "recall",
    "refreshed",
    "remember",
    "round_key",
    "run_key",
    "server_step",
    "step_keys",
    "step_size_at",
    "takes",
    "weighing",
    "with_canonical_convolutions",
]

claim_cores()
register(Curvature, CURVATURES)
register(Optimizer, OPTIMIZERS)
register(Schedule, SCHEDULES)
