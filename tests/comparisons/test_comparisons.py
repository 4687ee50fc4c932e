"""Comparisons: budgets by the accounts of real runs, seeds as runs of their own, and statistics by hand."""

import math

import numpy as np
import pytest

import headstart as hs
from headstart.algorithms import LocalOnly
from headstart.comparisons import Comparison, Entry, Spent, per_round
from headstart.comparisons.budget import affordable
from headstart.comparisons.refining import ACROSS, ALONG, Try, best_at_length, steadiest, tries
from headstart.errors import UsageError
from headstart.experiment.running import Job
from headstart.metrics import ACCURACY, RMSE
from headstart.statistics import holm, paired_test
from tests.report.page.made_up import write_run

PROBLEM = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,)))


def entry(title: str, own: np.ndarray, **about: object) -> Entry:
    """A method with such scores: one row per seed, one column per client."""
    seeds, clients = own.shape
    known = {
        "title": title, "settings": {"lr": 0.1}, "seeds": tuple(range(seeds)),
        "clients": np.array([f"c{i:02d}" for i in range(clients)]), "new": np.arange(clients) >= clients // 2,
        "steps": (0, 1), "scores": np.stack([own - 0.2, own], axis=1), "spent": Spent(10, 200, 3e6),
        "rounds": np.array([0, 5, 10]), "curve": np.stack([own.mean(axis=1)] * 3),
    }  # fmt: skip
    return Entry(**{**known, **about})


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    rng = np.random.default_rng(3)
    base = rng.uniform(0.4, 0.6, size=(5, 24))
    scores = [base + shift + 0.02 * rng.normal(size=base.shape) for shift in (0.1, 0.0, 0.09)]
    return Comparison(ACCURACY, [entry(n, s) for n, s in zip("abc", scores, strict=True)], "rounds")


def test_judged_are_new_clients(comparison):
    assert comparison.judged == "new"
    assert comparison.clients.tolist() == [f"c{i:02d}" for i in range(12, 24)]
    first = comparison.entries[0]
    assert comparison.means()[0].mean == pytest.approx(first.scores[:, 1, 12:].mean())
    assert comparison.order()[-1] == 1


def test_tests_over_seeds_are_on_means_over_clients(comparison):
    pairs = comparison.over_seeds()
    assert [(pair.first, pair.second) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    rows = [e.scores[:, 1, 12:].mean(axis=1) for e in comparison.entries]
    expected = [paired_test(rows[i], rows[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert [pair.test for pair in pairs] == expected
    assert [pair.p for pair in pairs] == holm([test.t_p for test in expected])
    assert pairs[0].differs()


def test_tests_over_clients_are_on_means_over_seeds(comparison):
    rows = [e.scores[:, 1, 12:].mean(axis=0) for e in comparison.entries]
    expected = [paired_test(rows[i], rows[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert [pair.p for pair in comparison.over_clients()] == holm([test.rank_p for test in expected])
    best = np.argmax(np.stack(rows), axis=0)
    assert comparison.best_for().tolist() == best.tolist()


def test_less_is_better_for_an_error():
    low, high = np.full((3, 8), 0.1) + 0.01 * np.arange(8), np.full((3, 8), 0.5)
    found = Comparison(RMSE, [entry("high", high), entry("low", low)], "rounds")
    assert found.order() == [1, 0]
    (pair,) = found.over_clients()
    assert pair.test.difference.mean < 0
    assert set(found.best_for()) == {1}
    assert found.ranking().ranks.tolist() == [2.0, 1.0]


def test_ties_and_lost_methods_win_nothing():
    same = np.full((2, 8), 0.5)
    lost = entry("lost", np.full((2, 8), np.nan))
    found = Comparison(ACCURACY, [lost, entry("a", same), entry("b", same)], "rounds")
    assert set(found.best_for()) == {-1}
    assert found.order()[-1] == 0
    report = hs.report.comparison_report(found)
    assert "cannot be told from" in report.markdown()


def test_a_method_that_diverged_with_a_seed_comes_last_and_says_so():
    good, better = np.full((3, 8), 0.5) + 0.01 * np.arange(3)[:, None], np.full((3, 8), 0.9)
    better[1] = np.nan
    found = Comparison(ACCURACY, [entry("lost one", better), entry("good", good)], "rounds")
    assert [found.diverged(one) for one in found.entries] == [1, 0]
    assert found.order() == [1, 0]
    assert found.means()[0].mean == pytest.approx(0.9)
    assert found.ranking().ranks.tolist() == [2.0, 1.0]
    document = hs.report.comparison_report(found).document
    table = document.tables()[0]
    diverged = [column.title for column in table.columns].index("diverged")
    assert [(row[0], row[diverged]) for row in table.rows] == [("good", "0"), ("lost one", "1")]
    assert "lost one diverged" in document.sentences[2]


def test_steps_are_tried_again_smaller_and_larger():
    experiment = hs.Experiment.from_toml(OPEN, tune=True)
    searched, methods = experiment.settings.tune.over, experiment.settings.methods
    of_two = tries(methods["per-fedavg"], searched["per-fedavg"])
    assert [tuple(one.changed) for one in of_two] == [("outer_lr", "inner_lr")] * len(ACROSS)
    assert of_two[0].changed == {name: methods["per-fedavg"].resolved[name] for name in ("outer_lr", "inner_lr")}
    assert of_two[1].algorithm.outer_lr == pytest.approx(0.5 * of_two[0].algorithm.outer_lr)
    of_one = tries(methods["fedavg"], searched["fedavg"])
    assert [one.changed["outer_lr"] / of_one[0].changed["outer_lr"] for one in of_one] == pytest.approx(ALONG)
    assert len(of_one) == len(of_two)
    assert tries(methods["fedavg"], ()) == []


def test_the_best_at_full_length_is_not_one_that_diverges():
    experiment = hs.Experiment.from_toml(OPEN)
    job, evaluation = Job(experiment.settings, experiment.federation), hs.Evaluation(steps=(0, 1))
    grid = [Try({"outer_lr": lr}, hs.fedavg(batch_size=5, local_steps=1, outer_lr=lr)) for lr in (1e6, 1e-9, 0.02)]
    assert best_at_length(grid, job, evaluation, 20, seeds=[7]) == 2


LOST = (math.inf, math.inf)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ([5, 4, 3, 2, 1], 3),  # nobody knows what lies beyond the largest
        ([3, 4, 2, 1, LOST], 2),  # twice as much as the best is too much
        ([2, 3, 4, LOST, LOST], 1),
        ([LOST, 2, 3, LOST, LOST], 1),
        ([LOST, LOST, LOST, LOST, LOST], 0),
        ([2, 1, LOST, 3, 4], 0),
    ],
)
def test_a_step_is_chosen_with_a_margin(scores, chosen):
    steps = [{"outer_lr": 0.01 * factor} for factor in ALONG]
    assert steadiest(steps, [score if score is LOST else (float(score), 0.0) for score in scores]) == chosen


def test_a_margin_is_of_all_steps():
    steps = [{"outer_lr": outer, "inner_lr": inner} for outer, inner in ACROSS]
    assert steadiest(steps, [(3.0, 0.0), (2.0, 0.0), (4.0, 0.0), (5.0, 0.0), LOST]) == 1
    assert steadiest(steps, [LOST, (2.0, 0.0), (3.0, 0.0), (5.0, 0.0), LOST]) == 3  # the others are beside a lost one
    assert steadiest(steps, [(3.0, 0.0), LOST, (4.0, 0.0), (1.0, 0.0), (2.0, 0.0)]) == 0


def test_only_shared_clients_and_seeds_count():
    one = entry("one", np.random.default_rng(0).uniform(size=(3, 8)), seeds=(0, 1, 2))
    shuffled = np.random.default_rng(1).permutation(8)
    other = entry(
        "other", one.scores[:2, 1][:, shuffled], seeds=(0, 1), clients=one.clients[shuffled], new=one.new[shuffled]
    )
    found = Comparison(ACCURACY, [one, other], "rounds")
    assert found.seeds == [0, 1]
    assert found.over_seeds()[0].test.ties == 2
    assert set(found.best_for().tolist()) <= {-1, 0, 1}
    with pytest.raises(UsageError, match="one method only"):
        Comparison(ACCURACY, [one], "rounds")


def test_the_report_says_it_in_every_form(comparison, tmp_path):
    made = hs.report.comparison_report(comparison)
    assert [section.name for section in made.document.sections] == ["means", "tests", "ranks", "winners", "settings"]
    means = made.document.tables()[0]
    assert [row[0] for row in means.rows] == [comparison.entries[i].title for i in comparison.order()]
    assert "differ" in made.document.sentences[1] or "cannot be told" in made.document.sentences[1]
    for name in ("page.html", "page.md", "page.txt"):
        assert made.save(tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize(
    "algorithm",
    [hs.per_fedavg(batch_size=4), hs.fedavg(batch_size="full", local_steps=2), hs.MOMLv2(batch_size=4)],
    ids=["per-fedavg", "full", "moml-v2"],
)
def test_a_round_costs_what_the_record_says(algorithm):
    rows = np.arange(24).reshape(6, 4)
    x = np.linspace(-1, 1, 24, dtype=np.float32)[:, None]
    federation = hs.Federation.from_arrays(hs.Examples(x, x), rows, rows)
    cohort = 3
    told = per_round(algorithm, PROBLEM, federation, cohort=cohort)
    history = hs.train(
        algorithm, PROBLEM, federation, rounds=1, cohort=cohort, evaluation=hs.Evaluation(steps=(0,)), backend="vmap"
    ).history.to_pylist()[0]
    assert told.samples == history["samples"]
    assert told.bytes == history["bytes_up"] + history["bytes_down"]


def test_rounds_that_a_budget_pays_for():
    budget = Spent(1, 30, 400).times(10)
    assert affordable(Spent(1, 10, 800), budget, "rounds") == 10
    assert affordable(Spent(1, 10, 800), budget, "samples") == 30
    assert affordable(Spent(1, 10, 800), budget, "bytes") == 5
    assert affordable(Spent(1, 0, 0), budget, "bytes") == 10


def test_clients_that_learn_by_themselves_spend_nothing():
    federation = hs.data.sine(clients=6, held_out=1)
    assert per_round(LocalOnly(), PROBLEM, federation, cohort=3) == Spent(1, 0, 0)


def test_seeds_are_runs_of_their_own(tmp_path):
    """A method with a seed in a comparison is that method trained alone with the seed, to rounding."""
    experiment = hs.Experiment(
        hs.per_fedavg(batch_size=5, inner_lr=0.01), PROBLEM, hs.data.sine(clients=5, held_out=2),
        baselines={"fedavg": hs.fedavg(batch_size=5)}, rounds=3, cohort=1.0, backend="vmap",
    )  # fmt: skip
    found = hs.compare(experiment, seeds=[4, 1], at="samples")
    assert [entry.title for entry in found.entries] == ["MetaFL", "fedavg"]
    assert [entry.spent.rounds for entry in found.entries] == [3, 9]
    assert found.entries[0].spent.samples == found.entries[1].spent.samples
    alone = hs.train(
        hs.fedavg(batch_size=5), PROBLEM, experiment.federation, rounds=9, cohort=1.0, seed=1, backend="vmap"
    ).table.to_pylist()
    last = [row[found.metric.name] for row in alone if row["round"] == 9 and row["steps"] == 1]
    assert found.entries[1].scores[1, 1] == pytest.approx(last, rel=1e-4)
    with pytest.raises(UsageError, match="no method 'fedavgg'"):
        hs.compare(experiment, methods=["fedavgg"])


def test_runs_that_differ_in_the_seed_are_seeds_of_one_method(tmp_path):
    runs = [write_run(tmp_path / f"s{seed}", seed=seed) for seed in range(3)]
    found = hs.compare_runs(runs, at="rounds")
    assert [(e.title, e.seeds) for e in found.entries] == [("per-fedavg", (0, 1, 2)), ("fedavg", (0, 1, 2))]
    record = hs.load_run(runs[1]).methods["fedavg"].table.to_pylist()
    last = {row["client"]: row["accuracy"] for row in record if row["round"] == 50 and row["steps"] == 5}
    mine = found.entries[1]
    assert dict(zip(mine.clients, mine.scores[1, -1], strict=True)) == pytest.approx(last)
    cheap = hs.compare_runs(runs, at="samples").entries
    assert cheap[0].spent == Spent(50, 40_000, 50e6)
    assert cheap[1].spent.samples <= 40_000
    assert cheap[1].rounds[-1] == 20
    with pytest.raises(UsageError, match="same seed"):
        hs.compare_runs([runs[0], runs[0]])


def test_runs_are_compared_by_the_models_that_were_kept(tmp_path):
    runs = [
        write_run(tmp_path / f"s{seed}", seed=seed, held_out=12, kept=kept)
        for seed, kept in enumerate([(50, 30), (40, 30)])
    ]
    found = hs.compare_runs(runs)
    assert found.judged == "new"
    assert len(found.clients) == 8
    for entry, rounds in zip(found.entries, ((50, 40), (30, 30)), strict=True):
        for place, (run, kept) in enumerate(zip(runs, rounds, strict=True)):
            rows = hs.load_run(run).methods[entry.title].table.to_pylist()
            there = {row["client"]: row["accuracy"] for row in rows if row["round"] == kept and row["steps"] == 5}
            assert dict(zip(entry.clients, entry.scores[place, -1], strict=True)) == pytest.approx(there)
    assert found.entries[0].spent.rounds == 50, "what came after the round that was kept was paid for, too"
    drawn = [figure.name for figure in hs.report.comparison_report(found).document.figures()]
    assert "curves" not in drawn, "there is one point of each"


def test_runs_of_different_data_are_not_compared(tmp_path):
    runs = [write_run(tmp_path / name, data=name) for name in ("one", "other")]
    with pytest.raises(UsageError, match="different data"):
        hs.compare_runs(runs)
    assert "is of other data" in hs.report.make_report(runs).document.sentences[1]


def test_a_comparison_is_a_file(comparison, tmp_path):
    lost = entry("lost", np.full((5, 24), np.nan))
    whole = Comparison(ACCURACY, [*comparison.entries, lost], "bytes", data="made up")
    hs.comparisons.save_comparison(whole, tmp_path / "found.json")
    again = hs.comparisons.load_comparison(tmp_path / "found.json")
    assert again.metric.description() == ACCURACY.description()
    assert (again.at, again.data) == ("bytes", "made up")
    for mine, theirs in zip(again.entries, whole.entries, strict=True):
        np.testing.assert_allclose(mine.scores, theirs.scores, rtol=1e-4)
        np.testing.assert_allclose(mine.curve, theirs.curve, rtol=1e-4)
        for name in ("clients", "new", "rounds"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        assert (mine.title, mine.settings, mine.seeds) == (theirs.title, theirs.settings, theirs.seeds)
        assert (mine.steps, mine.spent) == (theirs.steps, theirs.spent)
    hs.comparisons.save_comparison(again, tmp_path / "twice.json")
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "found.json").read_bytes()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match="not the file of a comparison"):
        hs.comparisons.load_comparison(tmp_path / "other.json")


OPEN = """
[data]
name = "sine"
clients = 5
held_out = 4
validation = 2
[model]
name = "mlp"
hidden = [4]
[algorithm]
name = "per-fedavg"
batch_size = 5
local_steps = 1
[baselines.fedavg]
name = "fedavg"
[baselines.reptile]
name = "reptile"
[train]
rounds = 4
cohort = 1.0
backend = "vmap"
[evaluate]
steps = [0, 1, 3]
"""


def test_each_method_has_settings_of_its_own(monkeypatch):
    """What is left open is searched for those that are compared, and each is judged after its own steps."""
    experiment = hs.Experiment.from_toml(OPEN, tune=True)
    searches, tuned = [], hs.Experiment.tuned

    def remembered(self, *args, **options):
        searches.append(tuned(self, *args, **options))
        return searches[-1]

    monkeypatch.setattr(hs.Experiment, "tuned", remembered)
    told: list[str] = []
    found = hs.compare(experiment, seeds=2, methods=["fedavg", "reptile"], searching=lambda t: told.append(t.method))
    assert set(told) == {"fedavg", "reptile"}
    (by_itself,) = searches
    assert set(by_itself.found["methods"]) == {"fedavg", "reptile"}
    for entry in found.entries:
        chosen = by_itself.found["methods"][entry.title]
        tried = [
            {**chosen["settings"], **one.changed}
            for one in tries(by_itself.experiment.settings.methods[entry.title], chosen["settings"])
        ]
        assert {name: entry.settings[name] for name in chosen["settings"]} in tried
        assert entry.steps == ((0, chosen["steps"]) if chosen["steps"] else (0,))
        assert entry.settings["adapt"]["steps"] == chosen["steps"]
    with pytest.raises(UsageError, match="no method 'fedavgg'"):
        hs.compare(experiment, methods=["fedavgg"], searching=pytest.fail)


def test_methods_by_name_take_over_settings():
    experiment = hs.comparisons.experiment_of(methods=["per-fedavg", "fedprox"], settings=["train.rounds=2"])
    assert experiment.config["baselines"]["fedprox"]["local_steps"] == 10
    assert experiment.config["train"]["rounds"] == 2


def test_the_command_compares_runs(tmp_path, capsys):
    from headstart.cli.main import app

    runs = [str(write_run(tmp_path / f"s{seed}", seed=seed)) for seed in range(2)]
    with pytest.raises(SystemExit) as left:
        app(["compare", *runs, "--at", "bytes", "--out", str(tmp_path / "page.html")])
    assert left.value.code == 0
    assert "2 methods compared at equal bytes" in (tmp_path / "page.html").read_text(encoding="utf-8")
    for name in ("found.json", "found.md"):  # the comparison itself, and a report from it
        given = runs if name == "found.json" else [str(tmp_path / "found.json")]
        with pytest.raises(SystemExit):
            app(["compare", *given, "--at", "bytes", "--out", str(tmp_path / name)])
    assert "2 methods compared at equal bytes" in (tmp_path / "found.md").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="cannot change runs that are done"):
        app(["compare", *runs, "--methods", "fedavg"], standalone_mode=False)
