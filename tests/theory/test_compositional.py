"""Local-SCGDM: Lemma 3.9's constants and both bounds hold on 200 problems; Theorem 3.4 fails for unlike clients."""

import dataclasses

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory import compositional
from headstart.theory.compositional import CompositionRun
from tests.theory.known import random_problem
from tests.theory.memory_runs import ALL, Federation, local_scgdm, squared, starts
from tests.theory.sweep import SLACK


def test_lemma_3_9_gives_true_constants():
    """At random models and memories, over all samples: suprema of exact moments and Lipschitz quotients."""
    federation = Federation([case.problem for case in ALL], [case.inner_lr for case in ALL], runs=32)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-5, 5, (2, *federation.shape, 3))
    found = [compositional.meta_composition(case.problem.constants, case.inner_lr) for case in ALL]
    samples = [federation.samples[:, :, None, :, s] for s in range(3)]
    mean, ones = federation.means, np.ones(3)
    distance = np.sqrt(squared(x - y))

    def jacobian(at, features):
        return federation.pulled(at, features, ones)  # a diagonal

    def moment(values):
        return np.mean(values, axis=0)

    measured = {
        "outer_smoothness": np.sqrt(squared(federation.gradient(x, mean) - federation.gradient(y, mean))) / distance,
        "inner_smoothness": np.abs(jacobian(x, mean) - jacobian(y, mean)).max(-1) / distance,
        "outer_gradient": np.sqrt(moment([squared(federation.gradient(x, z)) for z in samples])),
        "inner_jacobian": np.sqrt(moment([(jacobian(x, z) ** 2).max(-1) for z in samples])),
        "outer_noise": np.sqrt(
            moment([squared(federation.gradient(x, z) - federation.gradient(x, mean)) for z in samples])
        ),
        "jacobian_noise": np.sqrt(moment([((jacobian(x, z) - jacobian(x, mean)) ** 2).max(-1) for z in samples])),
        "inner_noise": np.sqrt(
            moment([squared(federation.adapted(x, z) - federation.adapted(x, mean)) for z in samples])
        ),
        "smoothness": np.sqrt(squared(federation.truth(x) - federation.truth(y))) / distance,
        "gradient_noise": moment(
            [
                squared(jacobian(x, a) * federation.gradient(federation.adapted(x, mean), b) - federation.truth(x))
                for a in samples
                for b in samples
            ]
        ),
    }
    for name, values in measured.items():
        bounds = np.array([getattr(composition, name) for composition in found])
        assert np.all(values.max((1, 2)) <= bounds * SLACK), name
    shared = np.repeat(x[:, :, :1], 4, axis=2)
    inner, truth = federation.adapted(shared, mean), federation.truth(shared)
    for name, values in {"inner_dissimilarity": inner, "gradient_dissimilarity": truth}.items():
        spread = np.sqrt(squared(values - values.mean(2, keepdims=True)).mean(2)).max(1)
        assert np.all(spread <= np.array([getattr(composition, name) for composition in found]) * SLACK), name


def test_lemma_3_9_as_printed_is_false():
    """Hessian -L_1 I with noise diag(s, -s): the norm of the Jacobian is the same for both samples."""
    constants = dataclasses.replace(random_problem(0).constants, smoothness=1.0, hessian_noise=0.5)
    inner_lr = 0.8
    jacobians = [np.eye(2) - inner_lr * (-np.eye(2) + np.diag([s, -s])) for s in (0.5, -0.5)]
    second = np.mean([np.linalg.norm(jacobian, 2) ** 2 for jacobian in jacobians])
    assert second > compositional.printed_inner_second_moment(constants, inner_lr)
    np.testing.assert_allclose(second, compositional.meta_composition(constants, inner_lr).inner_jacobian ** 2)
    vector = np.array([0.6, 0.8])
    along = np.mean([squared(jacobian @ vector) for jacobian in jacobians])
    assert along <= compositional.printed_inner_second_moment(constants, inner_lr)


def alike(problem):
    """The problem with its first client's wave and noise in every client's place, and no slopes."""
    parts = {part: np.repeat(getattr(problem, part)[:1], 4, axis=0) for part in ("wave", "wave_noise", "slope_noise")}
    return dataclasses.replace(problem, **parts, slope=np.zeros_like(problem.slope))


def largest_step(kind, composition, momentum, averaging, steps, scale):
    """The largest outer step size under a bound's conditions, with this many local steps."""
    outer_lr = getattr(compositional, f"{kind}largest_outer_lr")(composition, momentum, averaging)
    while getattr(compositional, f"{kind}largest_local_steps")(composition, outer_lr, scale) < steps:
        outer_lr /= 1.1
    return outer_lr


def ratios_along_runs(kind, problems, inner_lr, points, gaps, equal):
    """Measured over bound, of every problem: averages over 4 runs of 150 iterations with the largest step sizes."""
    scale, momentum, averaging, steps, iterations = 0.5, 1.5, 1.0, 3, 150
    compositions = [compositional.meta_composition(p.constants, a) for p, a in zip(problems, inner_lr, strict=True)]
    if equal:  # which is zero but for rounding
        compositions = [c._replace(inner_dissimilarity=0.0, gradient_dissimilarity=0.0) for c in compositions]
    outer_lr = [largest_step(kind, c, momentum, averaging, steps, scale) for c in compositions]
    federation = Federation(problems, inner_lr, runs=4)
    start = federation.start(points)
    average, _ = local_scgdm(federation, start, scale, outer_lr, momentum, averaging, steps, iterations)
    bound = getattr(compositional, f"{kind}average_gradient_bound")
    runs = [CompositionRun(scale, lr, momentum, averaging, steps, iterations, 4) for lr in outer_lr]
    return average / [bound(c, gap, run).total for c, gap, run in zip(compositions, gaps, runs, strict=True)]


def test_the_bound_for_unlike_clients_holds_along_runs():
    points, gaps = starts()
    ratios = ratios_along_runs(
        "", [case.problem for case in ALL], [case.inner_lr for case in ALL], points, gaps, equal=False
    )
    assert max(ratios) == pytest.approx(0.32, abs=0.1)


@pytest.mark.parametrize("kind", ["", "printed_"], ids=["corrected", "printed"])
def test_the_bounds_for_equal_clients_hold_along_runs(kind):
    problems = [alike(case.problem) for case in ALL]
    inner_lr, points = [case.inner_lr for case in ALL], [case.points[0] for case in ALL]
    gaps = [
        max(0.0, float(p.objective(w, a)) - p.minimum(a)[1]) for p, w, a in zip(problems, points, inner_lr, strict=True)
    ]
    ratios = ratios_along_runs(kind, problems, inner_lr, points, gaps, equal=True)
    assert max(ratios) == pytest.approx(0.45, abs=0.1)


def test_theorem_3_4_is_false_for_unlike_clients():
    """Without noise and from a minimum of F its bound is zero, yet the method walks away and stays away."""
    problem = random_problem(16)
    problem = dataclasses.replace(problem, wave_noise=0 * problem.wave_noise, slope_noise=0 * problem.slope_noise)
    inner_lr = 0.9 / problem.constants.smoothness
    best, least = problem.minimum(inner_lr)
    composition = compositional.meta_composition(problem.constants, inner_lr)
    equal = composition._replace(inner_dissimilarity=0.0, gradient_dissimilarity=0.0)
    outer_lr = largest_step("printed_", equal, 1.0, 1.0, steps=4, scale=0.2)
    run = CompositionRun(0.2, outer_lr, 1.0, 1.0, 4, 2000, 4)
    federation = Federation([problem], [inner_lr], runs=1)
    average, last = local_scgdm(federation, federation.start([best]), 0.2, [outer_lr], 1.0, 1.0, 4, 2000)
    gap = max(0.0, float(problem.objective(best, inner_lr)) - least)
    assert compositional.printed_average_gradient_bound(equal, gap, run).total < 1e-9
    assert min(average, last) > 1
    with pytest.raises(UsageError, match="equal clients only"):
        compositional.printed_average_gradient_bound(composition, gap, run)
    endless = run._replace(scale=1e-4, outer_lr=largest_step("", composition, 1.0, 1.0, 4, 1e-4), iterations=10**9)
    floor = compositional.average_gradient_bound(composition, gap, endless)
    assert floor.dominant == "memory_dissimilarity"
    assert floor.total > last


def test_schedules_have_the_order_of_corollary_3_5():
    constants = random_problem(0).constants
    composition = compositional.meta_composition(constants, 0.3 / constants.smoothness)
    composition = composition._replace(inner_dissimilarity=0.0, gradient_dissimilarity=0.0)
    rough, fine = (compositional.iterations_for(composition, 1.0, e, clients=4) for e in (1e-2, 5e-3))
    np.testing.assert_allclose(fine / rough, 2**4, rtol=0.01)
    runs = [compositional.schedule_for(composition, iterations, 4) for iterations in (rough, fine)]
    rounds = [run.iterations / run.local_steps for run in runs]
    np.testing.assert_allclose(rounds[1] / rounds[0], 2**3, rtol=0.01)
    bound = compositional.average_gradient_bound(composition, 1.0, runs[0])
    assert bound.total <= 1e-4
    shorter = compositional.schedule_for(composition, rough - 1, 4)
    assert compositional.average_gradient_bound(composition, 1.0, shorter).total > 1e-4


def test_schedules_keep_the_conditions_at_every_length():
    for case in ALL[::10]:
        composition = compositional.meta_composition(case.problem.constants, case.inner_lr)
        for iterations in (1, 2, 17, 300, 10**6):
            run = compositional.schedule_for(composition, iterations, 4)
            assert compositional.average_gradient_bound(composition, 1.0, run).total > 0


def test_theorem_3_4_is_reproduced():
    """(6) by hand, with numbers that tell its symbols apart."""
    c = compositional.CompositionConstants(0.5, 0.3, 2.0, 1.5, 0.7, 0.4, 0.2)
    run = CompositionRun(0.1, 0.05, 0.6, 0.8, 2, 100, 3)
    lf, lg, cf, cg, sf, sg, dg = c[:7]
    smooth = cg**2 * lf + cf * lg
    expected = (
        2 * 4.0 / (0.05 * 10)
        + 6 * (cg**2 * sf**2 + cg**2 * lf**2 * dg**2 + cf**2 * sg**2) / (0.6 * 10)
        + 4 * cg**2 * lf**2 * dg**2 / (0.8 * 10)
        + 2 * 0.08 * cg**2 * lf**2 * dg**2
        + 2 * 0.06 * (cg**2 * sf**2 + cf**2 * sg**2)
        + 2 * 0.08**2 * cg**2 * lf**2 * dg**2
        + 32 * (2 * 0.05 * 0.1 * smooth) ** 2 * (16 * cg**2 * lf**2 * dg**2 + cg**2 * sf**2 + 3 * cf**2 * sg**2)
    )
    np.testing.assert_allclose(compositional.printed_average_gradient_bound(c, 4.0, run).total, expected)
    # Remark 3.6.
    remark = 1 / np.sqrt(16 * cg**4 * lf**2 + 8 * smooth**2)
    np.testing.assert_allclose(compositional.printed_largest_outer_lr(c, 1.0, 1.0), remark)


def test_conditions_are_named():
    composition = compositional.CompositionConstants(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    run = CompositionRun(0.1, 0.01, 1.0, 1.0, 2, 100, 4)
    assert compositional.average_gradient_bound(composition, 1.0, run).total > 0
    for changed, condition in (
        (run._replace(momentum=20.0), r"momentum \* scale <= 1"),
        (run._replace(averaging=20.0), r"averaging \* scale <= 1"),
        (run._replace(scale=2.0), "scale <= 1"),
        (run._replace(outer_lr=1.0), r"outer_lr <= 1/\(L_F"),
        (run._replace(local_steps=1000), r"local_steps <= 1/\(16 L_F"),
    ):
        with pytest.raises(UsageError, match=condition):
            compositional.average_gradient_bound(composition, 1.0, changed)
    with pytest.raises(UsageError, match="outer_smoothness = 0"):
        compositional.largest_outer_lr(composition._replace(outer_smoothness=0.0), 1.0, 1.0)
    with pytest.raises(UsageError, match="memory_dissimilarity"):
        compositional.iterations_for(composition._replace(inner_dissimilarity=1.0), 1.0, 0.1, clients=4)
