"""Successive halving looks as far as a run goes, and tries to adapt by what is stable."""

import numpy as np
import pytest

import headstart as hs
from headstart.metrics import Metric
from headstart.tuning import Contest, Range, search
from headstart.tuning.adapting import judged, step_sizes
from headstart.tuning.budget import Ladder, affordable
from headstart.tuning.choosing import Choosers

RMSE = Metric("rmse", higher_is_better=False)
ROUNDS = 120


class FakeTrials:
    """Settings whose losses are given by a function of (setting's number, round, step size, steps)."""

    def __init__(self, number, loss, together=1):
        self.rounds, self.loss, self.together = np.zeros(number, int), loss, together
        self.asked = []

    def advance(self, which, rounds, told=lambda done: None):
        self.rounds[list(which)] += rounds
        told(rounds * len(which))

    def restart(self, place, algorithm):
        self.rounds[place] = 0
        self.restarted(place, float(algorithm.outer_lr))

    def scores(self, which, *, steps, ids, batch_size, sizes=None, told=lambda: None):
        sizes = np.zeros((len(which), 1)) if sizes is None else sizes
        self.asked.append((steps, sizes))
        losses = np.array([
            [[[self.loss(trial, self.rounds[trial], size, n)] * len(ids) for n in steps] for size in row]
            for trial, row in zip(which, sizes, strict=True)
        ])  # fmt: skip
        return {"loss": losses, "rmse": np.sqrt(losses)}


@pytest.fixture
def searched(monkeypatch):
    """A function that searches by a loss function."""

    def find(loss, together=1, **options):
        made = {}

        def trials(contest, algorithms, longest):
            made["rates"] = [float(each.outer_lr) for each in algorithms]
            trials = FakeTrials(len(algorithms), lambda trial, *at: loss(made["rates"][trial], *at), together)
            trials.restarted = made["rates"].__setitem__
            return trials

        monkeypatch.setattr(Contest, "trials", trials)
        federation = hs.data.sine(clients=8, held_out=2)
        contest = Contest(hs.Regression(hs.MLP(inputs=1, outputs=1)), federation, ROUNDS, 4, "uniform", 0)
        found = search(
            contest, "fedavg", lambda point: hs.fedavg(batch_size=5, local_steps=2, **point),
            {"outer_lr": Range(0.01, 10.0)}, smoothness=1.0, free_steps=True, **options,
        )  # fmt: skip
        return found, made

    return find


def _learning(rate, round_, size, steps):
    """Larger rates learn faster; steps of adaptation help up to ten, with sizes below 2."""
    base = 1.0 / (1.0 + rate * round_)
    return np.nan if size > 2 and steps else base / (1.0 + size * min(steps, 10))


def test_settings_that_diverge_late_are_not_chosen(searched):
    late = 0.7 * ROUNDS

    def loss(rate, round_, size, steps):
        return np.nan if rate > 1.0 and round_ > late else _learning(rate, round_, size, steps)

    found, made = searched(loss)
    assert sum(rate > 1.0 for rate in made["rates"]) > 4, "many were quicker at first"
    gentle = sorted(rate for rate in made["rates"] if rate <= 1.0)
    assert found.settings["outer_lr"] in gentle[-4:]
    told = {row["outer_lr"]: row["rmse"] for row in found.tried if row["rounds"] == ROUNDS}
    assert [rate for rate, value in told.items() if value is None], "and what diverged is on record"


def test_the_place_of_a_diverging_finalist_is_taken_by_a_gentler_one(searched):
    fastest = max(searched(_learning)[1]["rates"])
    found, made = searched(
        lambda rate, round_, *way: np.nan if rate == fastest and round_ == ROUNDS else _learning(rate, round_, *way)
    )
    chosen = found.settings["outer_lr"]
    assert 1 < fastest / chosen < 2, "one of the next ones, not any"
    rounds = {row["outer_lr"]: row["rounds"] for row in found.tried}
    assert rounds[fastest] == rounds[chosen] == ROUNDS
    assert sorted(rounds.values())[-3] < ROUNDS, "and nobody else was trained to the end"
    assert len(rounds) == len(made["rates"])


def test_steps_are_chosen_with_a_margin_to_those_that_diverge(searched):
    """At the edge of stability rounding decides whether the run that follows diverges."""

    def loss(rate, round_, *way):
        return np.nan if rate > 1.0 and round_ else _learning(rate, round_, *way)

    found, made = searched(loss)
    diverged = min(rate for rate in made["rates"] if rate > 1.0)
    safe = [rate for rate in made["rates"] if 2 * rate < diverged]
    assert any(diverged / 2 <= rate <= 1.0 for rate in made["rates"]), "quicker ones were tried"
    assert found.settings["outer_lr"] == max(safe)


def test_two_that_one_program_trains_are_both_trained_to_the_end(searched):
    fastest = max(searched(_learning)[1]["rates"])

    def loss(rate, round_, *way):
        return np.nan if rate == fastest and round_ == ROUNDS else _learning(rate, round_, *way)

    found, made = searched(loss, together=2)
    assert found.settings["outer_lr"] == sorted(made["rates"])[-2], "the other is there when the best diverges"
    assert sum(row["rounds"] == ROUNDS for row in found.tried) == 2


def test_what_lies_beside_the_best_is_tried_closer_and_closer(searched):
    def loss(rate, round_, size, steps):
        return 1.0 + abs(np.log(rate / 0.95)) / (1 + round_)

    def away(rate):
        return abs(np.log(rate / 0.95))

    found, made = searched(loss)
    first, second, third = made["rates"][:14], made["rates"][14:18], made["rates"][18:]
    assert min(map(away, second)) < min(map(away, first))
    assert found.settings["outer_lr"] == min(made["rates"], key=away)
    best = min(first + second, key=away)
    steps = [np.log(rate / best) for rate in third]
    assert np.allclose(np.abs(steps), np.log(1000) / 14 / 4, rtol=1e-2), "a quarter of the way to a neighbour"
    assert len(found.tried) == 20


def test_where_sharing_brings_nothing_clients_adapt_as_they_would_alone(searched):
    def loss(rate, round_, size, steps):
        return 1.0 / (1.0 + size * steps) if round_ == 0 else 2.0

    found, _ = searched(lambda *at: np.nan if at[2] > 2 and at[3] else loss(*at))
    assert found.steps == 300
    assert found.inner_lr == pytest.approx(max(size for size in step_sizes(12, 1.0) if size < 2), rel=1e-3)


def test_many_steps_are_tried_with_the_largest_stable_sizes_alone():
    trials = FakeTrials(2, lambda trial, round_, size, n: 9.0 if n and size > 1 + trial else 1 / (1 + size * n))
    sizes = np.tile([0.1, 0.2, 0.5, 0.7, 0.9, 1.5, 3.0], (2, 1))
    ladder, by = Ladder((0, 1, 10, 100, 300), 7, 5), Choosers(np.arange(3), np.full(3, 1 / 3))
    score = judged(trials, [0, 1], sizes, ladder, by, RMSE, "full", lambda: None)
    (few, all_sizes), (many, some) = trials.asked
    assert (few, many) == ((0, 1, 10), (100, 300))
    assert all_sizes is sizes
    assert np.sort(some, axis=1).tolist() == [[0.7, 0.9], [0.9, 1.5]]
    assert np.isinf(score.value[0, [0, 1, 2, 5, 6]][:, 3:]).all()
    assert score.value[1, 5, 4] == pytest.approx(np.sqrt(1 / (1 + 1.5 * 300)))
    assert np.isinf(score.value[:, 6, 1:]).all(), "what lets clients go astray has no score"


def test_given_numbers_of_steps_are_all_tried():
    assert Ladder((0, 100), 5, 5).short == (0, 100)
    assert Ladder((0, 1, 100), 5, 5).long == (100,)


def test_a_ladder_that_costs_too_much_loses_sizes_and_clients_before_steps():
    """Clients who share nothing need many steps, as many as they would take alone."""
    federation, ladder = hs.data.sine(clients=50, held_out=2), Ladder((0, 1, 3, 10, 30, 100, 300), 12, 40)
    whole = ladder.cost(federation, 10)
    for share, sizes, steps in ((1.0, 12, 7), (0.7, 6, 7), (0.2, 6, 7), (0.02, 6, 4)):
        found = affordable(federation, ladder, 10, 1, share * whole)
        assert found.cost(federation, 10) <= share * whole
        assert (found.sizes, len(found.steps)) == (sizes, steps)
