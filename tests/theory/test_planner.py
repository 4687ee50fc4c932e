"""Plans keep what they promise: their bounds, the theorems' conditions, and the gradient norms of runs."""

import math
from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.theory import Constants, Schedule, multi_step, per_fedavg, plan
from headstart.theory.planner import METHODS, Circumstances, method_of, plan_within
from tests.theory.known import random_problem
from tests.theory.sweep import Stacked

MILD = Constants(
    smoothness=1.0,
    hessian_lipschitz=0.5,
    gradient_bound=2.0,
    gradient_noise=1.0,
    hessian_noise=0.3,
    gradient_dissimilarity=0.02,
    hessian_dissimilarity=0.1,
    gradient_fourth_moment=3.0,
    hessian_fourth_moment=0.03,
)
AMONG = {"initial_gap": 3.0, "clients": 50, "cohort": 10, "inner_lr": 0.1}


@pytest.fixture(scope="module")
def plans():
    return plan(MILD, epsilon=0.1, **AMONG)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_keeps_to_epsilon_and_to_the_conditions(plans, method):
    found = plans[method]
    if found.run is None:
        assert method == "per-fedavg (first-order)"
        return
    assert found.run.bound <= 0.1
    assert found.run.terms[found.run.dominant] == max(found.run.terms.values())
    assert found.run.outer_lr <= found.run.largest_outer_lr * (1 + 1e-9)
    assert found.inner_lr == 0.1


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_is_settings_of_its_algorithm(plans, method):
    found = plans[method]
    if found.run is None:
        with pytest.raises(hs.UsageError, match="no plan"):
            found.settings()
        return
    algorithm = hs.ALGORITHMS[found.algorithm].build(**found.settings())
    assert algorithm.inner_lr == 0.1
    assert algorithm.outer_lr == found.run.outer_lr
    cost = algorithm.cost()
    drawn = sum(size * count for size, count in cost.batches.items()) * found.run.rounds * found.run.cohort
    # MOML v2 draws a fourth batch for its Lipschitz constant; a last round of Local-SCGDM may be cut short.
    assert drawn == pytest.approx(found.run.samples, rel=1e-3)


def test_the_bound_is_that_of_the_theorem(plans):
    run = plans["per-fedavg (exact)"].run
    sizes = [run.batches[name] for name in ("inner_batch_size", "batch_size", "curvature_batch_size")]
    error = per_fedavg.estimator_error(MILD, 0.1, *sizes)
    schedule = Schedule(run.outer_lr, run.local_steps, run.rounds)
    bound = per_fedavg.average_gradient_bound(MILD, 0.1, error, schedule, 50, 10, 3.0)
    assert run.terms == bound._asdict()
    assert run.after(2 * run.rounds)["start"] == pytest.approx(bound.start / 2)
    assert (
        per_fedavg.average_gradient_bound(MILD, 0.1, error, schedule._replace(rounds=run.rounds - 1), 50, 10, 3.0).total
        > 0.1
    ), "no round too many"


@pytest.mark.parametrize("cohort", [2, 50])
def test_no_other_run_needs_half_the_samples(cohort):
    """Random batches, step sizes and local steps, each with just the rounds that reach epsilon."""
    epsilon = 0.02
    run = plan(MILD, epsilon=epsilon, **{**AMONG, "cohort": cohort}, methods=["meta-fl"])["meta-fl"].run
    rng = np.random.default_rng(0)
    tried = 0
    while tried < 300:
        inner, outer = (int(size) for size in 2 ** rng.uniform(0, 24, 2))
        local_steps = int(2 ** rng.uniform(0, 8))
        largest = 1 / (10 * local_steps * multi_step.meta_smoothness(MILD, 0.1, 1))
        outer_lr = largest * 10 ** rng.uniform(-3, 0)
        error = multi_step.estimator_error(MILD, 0.1, 1, inner, outer, outer)
        schedule = Schedule(outer_lr, local_steps, 1)
        bound = multi_step.average_gradient_bound(MILD, 0.1, 1, error, schedule, 50, cohort, 3.0)
        room = epsilon - (bound.total - bound.start)
        if room > 0:
            tried += 1
            rounds = math.ceil(bound.start / room)
            assert rounds * cohort * local_steps * (inner + 2 * outer) >= run.samples / 2.9
    # Batches are powers of two, so a plan may draw up to 1.4 times what is possible, and twice that to save rounds.


def test_the_first_order_floor_is_where_plans_begin():
    floor = plan(MILD, epsilon=0.1, **AMONG)["per-fedavg (first-order)"].floor
    assert floor == pytest.approx(16 * (0.1 * 1.0 * 2.0) ** 2)
    reached = plan(MILD, epsilon=1.01 * floor, **AMONG, methods=["per-fedavg (first-order)"])
    assert reached["per-fedavg (first-order)"].run.bound <= 1.01 * floor


def test_unlike_clients_leave_local_scgdm_a_floor():
    unlike = replace(MILD, gradient_dissimilarity=1.0)
    found = plan(unlike, epsilon=0.1, **AMONG, methods=["local-scgdm"])["local-scgdm"]
    assert found.run is None
    assert "unlike clients" in found.obstacle
    assert found.floor == pytest.approx(126 * (1 + 0.1 * 1.3) ** 2 * 0.1**2)


def test_more_accuracy_needs_more_samples():
    tight = plan(MILD, epsilon=0.01, **AMONG, methods=list(METHODS)[4:])
    for method, found in plan(MILD, epsilon=0.1, **AMONG, methods=list(METHODS)[4:]).items():
        assert tight[method].run.samples > found.run.samples


def test_too_large_an_inner_step_is_lowered_to_the_largest_safe_one():
    for method, found in plan(MILD, epsilon=1e4, **{**AMONG, "inner_lr": 5.0}).items():
        if found.largest_inner_lr is None:
            assert found.inner_lr == 5.0
        elif method == "moml-v2":
            assert found.inner_lr == (math.sqrt(2) - 1) / 2
        else:
            assert found.inner_lr == found.largest_inner_lr == 1.0


def test_a_batch_of_all_samples_has_no_noise():
    found = plan(MILD, epsilon=1e-3, most_samples=70, **AMONG, methods=["per-fedavg (exact)"])["per-fedavg (exact)"]
    assert set(found.run.batches.values()) == {"full"}
    assert found.run.terms["noise"] < 1e-12
    assert found.run.samples == found.run.rounds * 10 * found.run.local_steps * 3 * 70


def test_without_fourth_moments_there_is_no_plan_for_several_steps():
    bare = replace(MILD, gradient_fourth_moment=None, hessian_fourth_moment=None)
    assert "fourth moments" in plan(bare, epsilon=1.0, **AMONG)["meta-fl"].obstacle
    assert plan(bare, epsilon=400.0, **AMONG, curvature="first-order", methods=["meta-fl"])["meta-fl"].run is not None


@pytest.mark.parametrize("seed", [1, 4, 11])
def test_a_planned_run_gets_below_epsilon(seed):
    """On problems with known constants, simulated by other code than the package's."""
    problem = random_problem(seed)
    inner_lr = 0.3 / problem.constants.smoothness
    start = np.random.default_rng(seed).uniform(-5, 5, problem.dimension)
    _, least = problem.minimum(inner_lr)
    squared = float(np.sum(problem.meta_gradients(start, inner_lr).mean(0) ** 2))
    run = plan(
        problem.constants,
        epsilon=squared / 2,
        initial_gap=float(problem.objective(start, inner_lr)) - least,
        clients=4,
        cohort=4,
        inner_lr=inner_lr,
        most_samples=3,
        methods=["per-fedavg (exact)"],
    )["per-fedavg (exact)"].run
    assert set(run.batches.values()) == {"full"}
    stacked = Stacked([problem], [inner_lr], 1)
    # The clients' means are their full batches.
    stacked.__dict__["samples"] = np.repeat(stacked.samples.mean(-2, keepdims=True), 3, axis=-2)
    rounds = min(run.rounds, 3000)
    average = stacked.run((start @ problem.rotation)[None], [run.outer_lr], 1, run.local_steps, rounds, 4, runs=1)
    assert average[0] <= sum(run.after(rounds).values())
    assert rounds < run.rounds or average[0] <= squared / 2


def test_what_cannot_be_planned_is_said():
    with pytest.raises(hs.UsageError, match="epsilon = 0 is not above 0"):
        plan(MILD, epsilon=0, **AMONG)
    with pytest.raises(hs.UsageError, match=r"(?s)no theorem on 'mom'.*moml"):
        plan(MILD, epsilon=1, **AMONG, methods=["mom"])
    with pytest.raises(hs.UsageError, match="not a finite number"):
        replace(MILD, smoothness=math.inf)


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"name": "per-fedavg", "curvature": {"name": "hessian-free", "radius": 0.1}}, "per-fedavg (hessian-free)"),
        ({"name": "local-moml", "keep_memory": True}, "local-moml (cross-silo)"),
        ({"name": "local-moml"}, "local-moml (cross-device)"),
        ({"name": "meta-fl", "curvature": "first-order"}, "meta-fl"),
        ({"name": "moml-v2"}, "moml-v2"),
    ],
)
def test_the_method_of_an_algorithm(settings, method):
    assert method_of(settings) == method


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "reptile"}, "no theorem on reptile"),
        ({"name": "moml", "curvature": "first-order"}, "moml with first-order curvature"),
        ({"name": "per-fedavg", "shared_batch": True}, "independent batches"),
        ({"name": "meta-fl", "curvature": "automatic"}, "independent batches"),
        ({"name": "local-moml", "reuse_batch": True}, "independent batches, and reuse_batch"),
    ],
)
def test_algorithms_without_a_theorem_are_refused(settings, says):
    with pytest.raises(hs.UsageError, match=says):
        method_of(settings)


@pytest.mark.parametrize("rounds", [1, 200])
def test_the_best_plan_within_some_rounds(rounds):
    circumstances = Circumstances(constants=MILD, epsilon=0.1, **AMONG, most_samples=70)
    for method in ("per-fedavg (exact)", "per-fedavg (first-order)", "local-moml (cross-device)"):
        epsilon, found = plan_within(circumstances, method, rounds)
        assert found.run.bound <= epsilon
        assert found.run.rounds <= rounds
        closer = METHODS[method](replace(circumstances, epsilon=epsilon / 1.06)).run
        assert closer is None or closer.rounds > rounds
