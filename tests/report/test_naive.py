"""What constants give is said beside what models give."""

import numpy as np
import pytest

import headstart as hs
from headstart.data import tables
from headstart.data.shared import share_of
from headstart.report.naive import constant_scores, naive_note

SETTINGS = ["train.rounds=2", "train.backend=vmap", "model.hidden=[4]", "evaluate.steps=[0,1]", "evaluate.every=2"]


def noise(label):
    """Twelve clients whose features tell nothing of the label."""
    rng = np.random.default_rng(0)
    labels = {"kind": rng.choice(["a", "b"], 240, p=[0.9, 0.1]), "size": np.arange(240) % 12 + rng.normal(size=240)}
    return {"who": [f"p{i % 12}" for i in range(240)], "x": rng.normal(size=240), label: labels[label]}


def test_constants_are_learned_from_the_rows_that_clients_adapt_on():
    partition = tables.table(noise("size"), client="who", label="size").partition
    labels, new = np.asarray(partition.samples.y, np.float64), range(len(partition) - 3, len(partition))
    errors = [labels[partition.query[i]] - labels[partition.train[i]].mean() for i in new]
    found = constant_scores(partition, "rmse", "new")
    assert partition.held_out - partition.validation == len(new)
    assert found.own == pytest.approx(np.mean([np.sqrt(np.mean(error**2)) for error in errors]))
    assert found.own < found.shared
    assert constant_scores(partition, "mae", "new") is None


def test_of_classes_it_is_the_most_frequent():
    partition = tables.table(noise("kind"), client="who", label="kind").partition
    right = np.mean([np.mean(np.asarray(partition.samples.y)[rows] == 0) for rows in partition.query])
    assert constant_scores(partition, "accuracy", "all").shared == pytest.approx(right)


def test_of_rows_that_a_host_has_let_go_of_nothing_is_said():
    share = share_of(tables.table(noise("kind"), client="who", label="kind"), 0, 2, lambda federation: "digest")
    assert constant_scores(share.partition, "accuracy", "all") is None


def test_a_run_that_is_no_better_says_so():
    experiment = hs.Experiment.from_table(noise("kind"), client="who", label="kind", settings=SETTINGS, tune=False)
    note = naive_note(experiment.run().record, experiment.federation)
    assert note.startswith("Without a model, new clients have accuracy ")
    assert "own most frequent class" in note
    assert "No method's own models are better" in note
