"""Methods that become one another at the ends of their parameters, on the same random batches."""

import numpy as np
import pytest

from headstart.algorithms import FedProx, MetaFL, Reptile, fedavg, per_fedavg
from headstart.core import HessianFree
from headstart.simulate import Simulation
from tests import toy

pytestmark = pytest.mark.usefixtures("x64")

LOCAL = {"local_steps": 3, "batch_size": 4}
META = {"inner_lr": 0.4, "outer_lr": 0.3, **LOCAL}


def trained(algorithm, rounds=3):
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=3)
    sim.advance(rounds)
    return toy.flat(sim.state.server.params)


def test_fedprox_without_its_term_is_fedavg():
    # The batches differ (an episode's outer key is one split further on), so on a client's whole data.
    options = {"outer_lr": 0.3, "local_steps": 3, "batch_size": "full"}
    np.testing.assert_allclose(trained(FedProx(mu=0.0, **options)), trained(fedavg(**options)), rtol=1e-12)


def test_reptile_with_outer_step_one_is_fedavg():
    full = {"local_steps": 3, "batch_size": "full"}
    np.testing.assert_allclose(
        trained(Reptile(inner_lr=0.3, outer_lr=1.0, **full)), trained(fedavg(outer_lr=0.3, **full)), rtol=1e-12
    )
    np.testing.assert_allclose(
        trained(Reptile(inner_lr=0.3, outer_lr=1.0, **LOCAL)),
        trained(FedProx(mu=0.0, outer_lr=0.3, **LOCAL)),
        rtol=1e-12,
    )


def test_meta_fl_with_no_inner_steps_is_fedavg():
    assert MetaFL(inner_steps=0, **META) == fedavg(**META)


@pytest.mark.parametrize("curvature", ["exact", "first-order", "hessian-free"])
def test_meta_fl_with_one_inner_step_is_per_fedavg(curvature):
    assert MetaFL(inner_steps=1, curvature=curvature, **META) == per_fedavg(curvature=curvature, **META)


@pytest.mark.parametrize("curvature", ["exact", "first-order", "hessian-free"])
def test_per_fedavg_that_does_not_adapt_is_fedavg(curvature):
    still = per_fedavg(curvature=curvature, **(META | {"inner_lr": 0.0}))
    np.testing.assert_allclose(trained(still), trained(fedavg(outer_lr=0.3, **LOCAL)), rtol=1e-12)


def test_hessian_free_tends_to_exact():
    exact = trained(MetaFL(inner_steps=2, curvature="exact", **META))
    error = [
        np.abs(trained(MetaFL(inner_steps=2, curvature=HessianFree(radius), **META)) - exact).max()
        for radius in (1e-1, 1e-2, 1e-3)
    ]
    assert 80 < error[0] / error[1] < 120
    assert 80 < error[1] / error[2] < 120
