"""Full-batch rounds on unequal clients, against the same rounds in numpy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms import Aruba, FedProx, MetaFL, PFedMe, Reptile, fedavg, per_fedavg
from headstart.core import Diminishing, HessianFree, StepDecay, round_key, weighing
from headstart.simulate import Simulation
from tests import toy
from tests.algorithms import reference

pytestmark = pytest.mark.usefixtures("x64")

ROUNDS, TAU, ALPHA, BETA, RADIUS = 4, 3, 0.4, 0.3, 1e-2
FULL = {"local_steps": TAU, "batch_size": "full"}
META = {"inner_lr": ALPHA, "outer_lr": BETA, **FULL}

CURVATURES = {
    "exact": ("exact", reference.exact),
    "first-order": ("first-order", reference.first_order),
    "hessian-free": (HessianFree(RADIUS), reference.hessian_free(RADIUS)),
}


def constant(k):
    return BETA


def meta(nu, product=reference.first_order, beta=constant, **options):
    return partial(reference.meta_fl, alpha=ALPHA, beta=beta, tau=TAU, nu=nu, product=product, **options)


def run(algorithm, cohort=3, weighting="uniform"):
    """The simulation after its rounds, its losses, and who took part."""
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=cohort, weighting=weighting)
    cohorts = toy.cohorts(sim, ROUNDS).tolist()
    history = sim.advance(ROUNDS)
    return sim, history["loss"].to_numpy(), cohorts


def numpy_clients():
    return [train for train, _ in toy.client_arrays()]


def check(algorithm, numpy_method, **run_options):
    sim, losses, cohorts = run(algorithm, **run_options)
    w, want_losses, *rest = numpy_method(toy.flat(toy.start()), numpy_clients(), cohorts)
    assert np.abs(w - toy.flat(toy.start())).max() > 1e-2
    np.testing.assert_allclose(toy.flat(sim.state.server.params), w, rtol=1e-8)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-8)
    assert int(sim.state.server.round) == ROUNDS
    return sim, rest


def test_the_reference_differentiates_its_own_loss():
    w, client, h = toy.flat(toy.start()), numpy_clients()[0], 1e-5
    for unit in np.eye(len(w)):
        slope = (reference.loss(w + h * unit, client) - reference.loss(w - h * unit, client)) / (2 * h)
        np.testing.assert_allclose(reference.gradient(w, client) @ unit, slope, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        reference.exact(w, client, w), reference.hessian_free(1e-4)(w, client, w), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("name", CURVATURES)
@pytest.mark.parametrize("nu", [1, 2, 3])
def test_generalized_meta_fl(nu, name):
    curvature, product = CURVATURES[name]
    build = per_fedavg if nu == 1 else partial(MetaFL, inner_steps=nu)
    check(build(curvature=curvature, **META), meta(nu, product))


def test_fedavg():
    check(fedavg(outer_lr=BETA, **FULL), partial(reference.fedavg, beta=constant, tau=TAU))


def test_fedavg_with_everyone_weighted_by_samples():
    check(
        fedavg(outer_lr=BETA, **FULL),
        partial(reference.fedavg, beta=constant, tau=TAU, by_samples=True),
        cohort=1.0,
        weighting="samples",
    )


def test_step_decay_and_weights_by_samples():
    check(
        per_fedavg(**(META | {"outer_lr": StepDecay(BETA, (1, 3), factor=0.5)})),
        meta(1, reference.exact, lambda k: BETA * 0.5 ** ((k >= 1) + (k >= 3)), by_samples=True),
        weighting="samples",
    )


def test_diminishing_step_sizes():
    check(
        per_fedavg(**(META | {"outer_lr": Diminishing(1.0, local_steps=TAU)})),
        meta(1, reference.exact, lambda k: 1 / np.sqrt(TAU * (k + 1))),
    )


def test_random_iterate():
    algorithm = per_fedavg(random_iterate=True, **META)
    template = Simulation(algorithm, toy.LOGISTIC, toy.federation())
    kept = [
        int(algorithm.broadcast(template.state.server, round_key(template.keys.server, k)).keep) for k in range(ROUNDS)
    ]
    assert set(kept) <= set(range(TAU))
    assert len(set(kept)) > 1
    sim, (iterate,) = check(algorithm, meta(1, reference.exact, kept=kept))
    np.testing.assert_allclose(toy.flat(sim.state.server.iterate), iterate, rtol=1e-8)


def test_fedprox():
    method = partial(reference.fedavg, beta=constant, tau=TAU, mu=0.7)
    sim, _ = check(FedProx(mu=0.7, outer_lr=BETA, inner_lr=ALPHA, **FULL), method)
    check_personal(sim, partial(reference.fine_tuned, lr=ALPHA))


def test_reptile():
    method = partial(reference.fedavg, beta=constant, tau=TAU, mixing=lambda k: 0.8 * 0.5 ** (k >= 2))
    sim, _ = check(Reptile(inner_lr=BETA, outer_lr=StepDecay(0.8, (2,), factor=0.5), **FULL), method)
    check_personal(sim, partial(reference.fine_tuned, lr=BETA))


@pytest.mark.parametrize("own", [None, 0.0])
def test_pfedme(own):
    options = {"penalty": 1.5, "inner_lr": 0.3, "inner_steps": 3}
    sim, _ = check(
        PFedMe(outer_lr=0.4, server_mixing=0.7, personal_penalty=own, **options, **FULL),
        partial(reference.pfedme, eta=0.4, mixing=0.7, steps=TAU, **options),
    )

    def personal(w, client, *, steps):
        if own == 0:
            return reference.fine_tuned(w, client, lr=0.3, steps=steps)
        return reference.moreau_point(w, client, **(options | {"inner_steps": steps}))[0]

    check_personal(sim, personal)


@pytest.mark.parametrize("refinement", [0.0, 1.5])
def test_aruba(refinement):
    sim, (b, g) = check(
        Aruba(initial_lr=0.3, zeta=0.8, power=1.3, refinement=refinement, **FULL),
        partial(reference.aruba, epsilon=0.3 * 0.8, zeta=0.8, power=1.3, tau=TAU),
    )
    np.testing.assert_allclose(toy.flat(sim.state.server.distance), b, rtol=1e-8)
    np.testing.assert_allclose(toy.flat(sim.state.server.gradient), g, rtol=1e-8)
    check_personal(sim, partial(reference.aruba_refined, b=b, g=g, refinement=refinement))


@pytest.mark.parametrize("nu", [0, 2])
def test_meta_fl_personalizes_by_fine_tuning(nu):
    algorithm = MetaFL(inner_steps=nu, **META)
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation())
    check_personal(sim, partial(reference.fine_tuned, lr=ALPHA))


def check_personal(sim, numpy_personal):
    """Every client's own model after 0, 1 and 3 steps on all its support data."""
    algorithm = sim.algorithm
    down = algorithm.broadcast(sim.state.server, jax.random.key(0))
    w = toy.flat(sim.state.server.params)
    for steps in (0, 1, 3):

        @jax.jit
        def personalize(client, steps=steps):
            support = sim.federation.clients.view("support", client)
            return algorithm.personalize(
                weighing(toy.logistic_loss), down, (), support, jax.random.key(1), steps, "full"
            )

        for i, data in enumerate(numpy_clients()):
            want = numpy_personal(w, data, steps=steps)
            np.testing.assert_allclose(toy.flat(personalize(jnp.asarray(i))), want, rtol=1e-8)
