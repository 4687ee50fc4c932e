"""Plans for the methods with memories: MOML, MOML v2, LocalMOML and Local-SCGDM."""

import math
from collections.abc import Callable

from headstart.errors import UsageError
from headstart.theory import compositional, local_memory, memory, unbounded_memory
from headstart.theory.compositional import CompositionConstants
from headstart.theory.planner.choice import NOISELESS, batch_sizes, best, cost_of, size_of
from headstart.theory.planner.plans import Circumstances, MethodPlan, PlannedRun

__all__ = ["plan_local_moml", "plan_local_scgdm", "plan_moml", "plan_moml_v2"]

Attempt = Callable[[int], PlannedRun]
"""A plan for one batch size; raises `UsageError` where none reaches epsilon."""


def _over_batches(circumstances: Circumstances, attempt: Attempt, least: int = 1) -> tuple[PlannedRun | None, str]:
    """The best plan over batch sizes, and what the last attempt ran into."""
    runs, trouble = [], ""
    for batch in batch_sizes(circumstances):
        if batch >= least:
            try:
                runs.append(attempt(batch))
            except UsageError as error:
                trouble = error.problem
    return best(runs), trouble


def plan_moml(circumstances: Circumstances) -> MethodPlan:
    """Theorem 3 at the step sizes that make its bound smallest."""
    constants, accuracy = circumstances.constants, circumstances.accuracy
    largest = 1 / constants.smoothness
    inner_lr = circumstances.safe_inner_lr(largest)

    def attempt(batch: int) -> PlannedRun:
        found = memory.plan(
            constants,
            inner_lr,
            _gap(circumstances),
            accuracy,
            circumstances.clients,
            circumstances.cohort,
            batch,
        )
        run = found.run
        return PlannedRun(
            outer_lr=run.outer_lr,
            largest_outer_lr=math.inf,
            local_steps=1,
            rounds=run.iterations,
            cohort=run.cohort,
            batches={"batch_size": size_of(batch, circumstances)},
            samples=3 * cost_of(batch, circumstances) * run.cohort * run.iterations,
            terms=found.bound._asdict(),
            more={"averaging": run.averaging},
        )

    run, trouble = _over_batches(circumstances, attempt)
    return MethodPlan(
        method="moml",
        algorithm="moml",
        theorem="wang Theorem 3",
        largest_inner_lr=largest,
        inner_lr=inner_lr,
        run=run,
        obstacle=None if run else trouble,
    )


def plan_moml_v2(circumstances: Circumstances) -> MethodPlan:
    """Theorem 5, with the steps of section 4.3.

    ``Upsilon_0`` is at most ``alpha^2 (G^2 + (G^2 + sigma_G^2/K)/p)``: memories begin at the model itself and have
    moved once. Half of the largest inner step size is planned where the wanted one is too large, as the constants
    grow beyond all bounds towards the largest.
    """
    constants, accuracy = circumstances.constants, circumstances.accuracy
    largest = (math.sqrt(2) - 1) / constants.smoothness
    inner_lr = circumstances.inner_lr if circumstances.inner_lr < largest else largest / 2
    needed = unbounded_memory.lipschitz_batches(constants, inner_lr, circumstances.clients)
    cohort = max(circumstances.cohort, needed.cohort)
    participation = cohort / circumstances.clients
    control = unbounded_memory.gradient_control(constants, inner_lr)
    unlike = (1 + control.from_dissimilarity) * constants.gradient_dissimilarity
    steepness = memory.lipschitz_at(constants, inner_lr, [unlike + control.from_meta * accuracy])

    def attempt(batch: int) -> PlannedRun:
        squared = constants.gradient_bound**2
        tracking = inner_lr**2 * (squared + (squared + constants.gradient_noise**2 / batch) / participation)
        gap = _gap(circumstances)
        found = unbounded_memory.plan(
            constants, inner_lr, gap, tracking, accuracy, circumstances.clients, participation, batch
        )
        moment = unbounded_memory.gradient_second_moment(constants, inner_lr, batch).noise
        remembered = unbounded_memory.tracking(constants, inner_lr, participation, batch).noise
        potential = gap + found.scale ** (1 / 3) * tracking
        # Lemma 17 summed over all iterations, times 10 L(w)/(eta_0 T); at the end L(w) is at most the steepness.
        return PlannedRun(
            outer_lr=found.scale,
            largest_outer_lr=unbounded_memory.largest_scale(constants, inner_lr, participation, batch),
            local_steps=1,
            rounds=found.iterations,
            cohort=cohort,
            batches={"batch_size": size_of(batch, circumstances)},
            samples=4 * cost_of(batch, circumstances) * cohort * found.iterations,
            terms={
                "start": 10 * steepness * potential / (found.scale * found.iterations),
                "noise": 5 * steepness * found.scale * moment / constants.smoothness,
                "memory_noise": 10 * steepness * found.scale ** (2 / 3) * remembered,
            },
            more={"smoothness": constants.smoothness, "hessian_lipschitz": constants.hessian_lipschitz},
        )

    run, trouble = _over_batches(circumstances, attempt, least=needed.samples)
    notes = ["outer_lr is eta_0, which the estimate of the gradient's Lipschitz constant divides in every iteration."]
    if cohort > circumstances.cohort:
        notes.append(f"Lemma 12 trusts that estimate with a cohort of {cohort} or more.")
    return MethodPlan(
        method="moml-v2",
        algorithm="moml-v2",
        theorem="wang Theorem 5",
        largest_inner_lr=largest,
        inner_lr=inner_lr,
        run=run,
        obstacle=None if run else trouble,
        notes=tuple(notes),
    )


def plan_local_moml(circumstances: Circumstances, keep_memory: bool) -> MethodPlan:
    """Corollary 1 (memories restarted every round) or 2 (memories kept, all clients in every round)."""
    constants, accuracy = circumstances.constants, circumstances.accuracy
    largest = 1 / constants.smoothness
    inner_lr = circumstances.safe_inner_lr(largest)

    def attempt(batch: int) -> PlannedRun:
        gap, clients = _gap(circumstances), circumstances.clients
        if keep_memory:
            found = local_memory.cross_silo_plan(constants, inner_lr, gap, accuracy, clients, batch)
        else:
            found = local_memory.cross_device_plan(
                constants, inner_lr, gap, accuracy, clients, circumstances.cohort, batch
            )
        run = found.run
        restart = 0 if run.memory_batch is None else cost_of(run.memory_batch, circumstances)
        memory_batch = (
            {} if run.memory_batch is None else {"memory_batch_size": size_of(run.memory_batch, circumstances)}
        )
        return PlannedRun(
            outer_lr=run.outer_lr,
            largest_outer_lr=local_memory.largest_outer_lr(
                constants, inner_lr, run.averaging, run.local_steps, keep_memory
            ),
            local_steps=run.local_steps,
            rounds=run.rounds,
            cohort=run.cohort,
            batches={"batch_size": size_of(batch, circumstances), **memory_batch},
            samples=run.rounds * run.cohort * (3 * run.local_steps * cost_of(batch, circumstances) + restart),
            terms=found.bound._asdict(),
            more={"averaging": run.averaging, "keep_memory": keep_memory},
        )

    run, trouble = _over_batches(circumstances, attempt)
    return MethodPlan(
        method=f"local-moml ({'cross-silo' if keep_memory else 'cross-device'})",
        algorithm="local-moml",
        theorem=f"wang Theorem 7, Corollary {2 if keep_memory else 1}",
        largest_inner_lr=largest,
        inner_lr=inner_lr,
        run=run,
        obstacle=None if run else trouble,
        notes=(f"Kept memories are planned with all {circumstances.clients} clients in every round.",)
        if keep_memory
        else (),
    )


def plan_local_scgdm(circumstances: Circumstances) -> MethodPlan:
    """Corollary 3.5 with the bound for unlike clients."""
    constants, accuracy = circumstances.constants, circumstances.accuracy
    largest = 1 / constants.smoothness  # Lemma 3.9 takes any; how unlike meta-gradients are is known up to this
    inner_lr = circumstances.safe_inner_lr(largest)
    gap, clients = circumstances.initial_gap, circumstances.clients

    def attempt(batch: int) -> PlannedRun:
        composition = compositional.meta_composition(constants, inner_lr, batch)
        iterations = compositional.iterations_for(composition, gap, accuracy, clients)
        run = compositional.schedule_for(composition, iterations, clients)
        return PlannedRun(
            outer_lr=run.outer_lr,
            largest_outer_lr=compositional.largest_outer_lr(composition, run.momentum, run.averaging),
            local_steps=run.local_steps,
            rounds=math.ceil(iterations / run.local_steps),
            cohort=clients,
            batches={"batch_size": size_of(batch, circumstances)},
            samples=2 * cost_of(batch, circumstances) * clients * iterations,
            terms=compositional.average_gradient_bound(composition, gap, run)._asdict(),
            more={"scale": run.scale, "momentum": run.momentum, "averaging": run.averaging},
        )

    run, trouble = _over_batches(circumstances, attempt)
    floor = None if run else _dissimilarity_floor(compositional.meta_composition(constants, inner_lr, NOISELESS))
    return MethodPlan(
        method="local-scgdm",
        algorithm="local-scgdm",
        theorem="gao Corollary 3.5, for any clients",
        largest_inner_lr=largest,
        inner_lr=inner_lr,
        run=run,
        floor=floor,
        obstacle=None if run else trouble,
        notes=(f"Planned with all {clients} clients in every round, as the theorem has it.",),
    )


def _dissimilarity_floor(composition: CompositionConstants) -> float:
    """What averaging the memories of unlike clients leaves of the bound."""
    outer_lr = compositional.largest_outer_lr(composition, 1.0, 1.0)
    run = compositional.CompositionRun(
        min(1.0, 1 / (16 * composition.smoothness * outer_lr)), outer_lr, 1.0, 1.0, 1, 1, 1
    )
    return compositional.average_gradient_bound(composition, 0.0, run).memory_dissimilarity


def _gap(circumstances: Circumstances) -> float:
    """The step sizes of the plans are proportional to powers of the gap, so it may not be zero."""
    return max(circumstances.initial_gap, 1e-12)
