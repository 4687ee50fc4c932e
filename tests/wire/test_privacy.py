"""The accountant against closed forms and against dp-accounting's own bounds."""

import math
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy.stats import norm

from headstart.errors import UsageError
from headstart.wire import (
    AdaptiveClip,
    Clip,
    GaussianMechanism,
    Noise,
    Wire,
    default_delta,
    epsilon_of,
    noise_for,
    privacy_spent,
    wire,
)

DELTA = 1e-5


def gaussian_delta(epsilon, mu):
    """Balle and Wang 2018, Theorem 8, with the sensitivity in deviations."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def renyi_gaussian(mu, delta):
    """Mironov 2017, Proposition 3, at the best real order."""
    orders = 1 + np.geomspace(1e-3, 1e3, 20_000)
    return np.min(orders * mu**2 / 2 + math.log(1 / delta) / (orders - 1))


@pytest.mark.parametrize("at", ["server", "client"])
@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (4.0, 10), (30.0, 200)])
def test_everyone_in_every_round_is_one_gaussian(multiplier, rounds, at):
    epsilon = epsilon_of(multiplier, DELTA, rounds, 20, 20, at)
    mu = 2 * math.sqrt(rounds) / multiplier
    assert gaussian_delta(epsilon, mu) == pytest.approx(DELTA, rel=1e-5)
    # Two independent bounds for a multiplier of half the size, as a replaced client moves the sum by twice the norm.
    assert epsilon <= renyi_gaussian(mu, DELTA)
    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier / 2), rounds)
    assert epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize(("multiplier", "cohort", "clients"), [(1.0, 10, 100), (3.0, 10, 20), (0.5, 1, 1000)])
def test_one_secret_cohort(multiplier, cohort, clients):
    """One round in closed form: Balle, Barthe and Gaboardi 2018, Theorem 9."""
    epsilon = epsilon_of(multiplier, DELTA, 1, cohort, clients)
    share = cohort / clients
    inner = math.log(1 + math.expm1(epsilon) / share)
    assert share * gaussian_delta(inner, 2 / multiplier) == pytest.approx(DELTA, rel=0.02)


@pytest.mark.parametrize(
    ("multiplier", "rounds", "cohort", "clients"), [(2.0, 200, 10, 50), (1.0, 1000, 10, 1000), (10.0, 100, 49, 50)]
)
def test_many_secret_cohorts_lie_between_two_known_bounds(multiplier, rounds, cohort, clients):
    """Above Poisson draws with one client added (a smaller set of neighbours), below Wang et al.'s Renyi bound."""
    epsilon = epsilon_of(multiplier, DELTA, rounds, cohort, clients)
    gaussian = dp_accounting.GaussianDpEvent(multiplier / 2)
    below = pld.PLDAccountant()
    below.compose(dp_accounting.PoissonSampledDpEvent(cohort / clients, gaussian), rounds)
    above = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    above.compose(dp_accounting.SampledWithoutReplacementDpEvent(clients, cohort, gaussian), rounds)
    assert below.get_epsilon(DELTA) * 0.999 <= epsilon <= above.get_epsilon(DELTA)
    assert epsilon <= epsilon_of(multiplier, DELTA, rounds, clients, clients)
    # A client that knows in which rounds it took part is protected no better.
    assert epsilon <= epsilon_of(multiplier, DELTA, rounds, cohort, clients, "client")


def test_local_privacy_is_the_mean_over_participations():
    """Two rounds by hand: a client is in none, one or both of them."""
    epsilon = epsilon_of(2.0, DELTA, 2, 3, 10, "client")
    once, twice = gaussian_delta(epsilon, 1.0), gaussian_delta(epsilon, math.sqrt(2))
    assert 2 * 0.3 * 0.7 * once + 0.3**2 * twice == pytest.approx(DELTA, rel=1e-5)


@pytest.mark.parametrize("at", ["server", "client"])
def test_more_noise_fewer_rounds_and_smaller_cohorts_protect_better(at):
    def epsilons(**changed):
        usual = {"multiplier": 3.0, "delta": DELTA, "rounds": 20, "cohort": 10, "clients": 50, "at": at}
        ((name, values),) = changed.items()
        return [epsilon_of(**(usual | {name: value})) for value in values]

    for rising in (
        epsilons(multiplier=[10.0, 3.0, 1.0, 0.3]),
        epsilons(rounds=[1, 5, 20, 80]),
        epsilons(cohort=[1, 10, 40, 50]),
        epsilons(clients=[500, 50, 11, 10]),
        epsilons(delta=[1e-3, 1e-5, 1e-8]),
    ):
        assert rising == sorted(rising)
        assert rising[0] < rising[-1]
    assert epsilons(multiplier=[0.0]) == [math.inf]


def test_cohorts_that_are_no_secret_do_not_amplify():
    """An adversary who knows who took part sees a plain Gaussian in those rounds, wherever the noise was added."""
    known = epsilon_of(2.0, DELTA, 10, 3, 10, "server", secret_cohorts=False)
    assert known == epsilon_of(2.0, DELTA, 10, 3, 10, "client")
    assert known > epsilon_of(2.0, DELTA, 10, 3, 10, "server")
    spent = privacy_spent(wire(clip=1.0, noise=2.0, delta=DELTA), 10, 3, 10, secret_cohorts=False)
    assert spent.epsilon == known
    assert spent.note == "10 rounds, 3 of 10 clients per round, of whom sites know the numbers"


@pytest.mark.parametrize("at", ["server", "client"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_noise_for_an_epsilon(epsilon, at):
    multiplier = noise_for(epsilon, DELTA, 50, 10, 100, at)
    assert epsilon_of(multiplier, DELTA, 50, 10, 100, at) <= epsilon
    assert epsilon_of(multiplier / 1.002, DELTA, 50, 10, 100, at) > epsilon


def test_a_line_for_people():
    spent = privacy_spent(wire(clip=1.0, noise=5.0, delta=1e-5), 200, 10, 50)
    assert spent.kind == "central"
    assert str(spent) == (
        f"central differential privacy: epsilon = {spent.epsilon:.3g} at delta = 1e-05 for one client's whole data, "
        "200 rounds, 10 of 50 clients per round"
    )
    local = privacy_spent(wire(clip=AdaptiveClip(1.0), noise=Noise(5.0, "client")), 200, 10, 10**6)
    assert (local.kind, local.delta) == ("local", default_delta(10**6))
    silent = Wire((GaussianMechanism(Clip(1.0), Noise(0.0)),))
    assert "no central differential privacy" in str(privacy_spent(silent, 1, 1, 2))
    assert privacy_spent(wire(clip=1.0), 200, 10, 50) is None
    assert privacy_spent(Wire(), 200, 10, 50) is None


def test_adaptive_clipping_costs_no_more_than_its_multiplier_says():
    fixed = privacy_spent(wire(clip=1.0, noise=5.0), 40, 10, 50)
    assert privacy_spent(wire(clip=AdaptiveClip(1.0), noise=5.0), 40, 10, 50) == fixed


def test_delta_is_below_one_in_the_number_of_clients():
    assert default_delta(50) == 1e-5
    assert default_delta(10**6) == pytest.approx(10**-6.6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1.0, DELTA, 1, 1, 2), "multiplier"),
        ((1.0, 0.0, 1, 1, 2), "delta = 0.0"),
        ((1.0, DELTA, 0, 1, 2), "rounds = 0"),
        ((1.0, DELTA, 1, 3, 2), "cohort = 3 of 2"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(UsageError, match=words):
        epsilon_of(*arguments)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(UsageError, match=r"(?s)dp-accounting.*headstart\[privacy\]"):
        epsilon_of(1.0, DELTA, 5, 1, 10)
    assert epsilon_of(1.0, DELTA, 5, 10, 10) > 0
