import re
from dataclasses import replace

import jax
import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.artifact import Predictor
from headstart.artifact.adapting import _folds, _Judged, _words
from headstart.artifact.target import Target
from headstart.data.episodes import Episodes
from headstart.data.tables.reading import TableSource
from headstart.errors import UsageError
from headstart.problems import Examples


@pytest.fixture(scope="module")
def own(frame):
    return frame[frame["who"] == "p3"]


def stepped(model, data, steps, lr):
    """Plain gradient descent on all rows."""
    inputs, target = model.description.inputs, model.description.target
    stored, labels, _ = inputs.labelled(data, target.label)
    batch = inputs.transform(Examples(stored, target.coded(labels)))
    params = model.params
    for _ in range(steps):
        gradient = jax.grad(model.problem.loss)(params, batch)
        params = jax.tree.map(lambda w, g: w - lr * g, params, gradient)
    return params


def test_adapting_is_gradient_descent_on_the_rows(model, own):
    mine = model.adapt(own, steps=2, lr=0.1)
    assert mine.adaptation.steps == 2
    assert not mine.adaptation.chosen
    assert not mine.adaptation.kept_shared
    for one, other in zip(*map(jax.tree.leaves, (mine.params, stepped(model, own, 2, 0.1))), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_scores_before_and_after_are_those_of_rows_held_back(model, own):
    report = model.adapt(own, steps=2, lr=0.1).adaptation
    labels = (own["likes"] == "yes").to_numpy().astype(np.int32)
    folds = _folds(labels, True, 0)
    assert report.held_back == len(own) == len(np.unique(np.concatenate(folds)))
    right = [(model.predict(own.iloc[fold]) == own["likes"].iloc[fold]).sum() for fold in folds]
    assert report.before["accuracy"] == pytest.approx(sum(right) / len(own))
    held = []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(own)), fold)
        params = stepped(model, own.iloc[rest], 2, 0.1)
        stored = next(model.description.inputs.blocks(own.iloc[fold])).stored
        held += list(-np.log(np.asarray(model.forward(params, stored))[np.arange(len(fold)), labels[fold]]))
    assert report.after["loss"] == pytest.approx(np.mean(held), rel=1e-4)
    assert [row["steps"] for row in report.curve] == [0, 2]


def test_steps_and_their_size_are_chosen_where_rows_suffice(model, own, tmp_path):
    mine = model.adapt(own)
    report = mine.adaptation
    assert report.chosen
    assert report.after["loss"] < report.before["loss"]
    assert [row["steps"] for row in report.curve] == [0, 1, 2, 5, 10, 20, 50]
    loaded = hs.load(mine.save(tmp_path / "mine.safetensors"))
    np.testing.assert_array_equal(loaded.predict_proba(own), mine.predict_proba(own))
    assert loaded.description.adapted["from"] == model.digest
    assert report.words in loaded.card()


def test_the_shared_model_is_kept_where_adapting_hurts(model, own):
    report = model.adapt(own, steps=50, lr=1000.0).adaptation
    assert report.kept_shared
    assert report.steps == 0
    assert "does not help" in report.words
    assert model.adapt(own, steps=50, lr=1000.0).params is model.params


def test_a_single_row_is_adapted_on_as_in_training(model, own):
    report = model.adapt(own.iloc[:1]).adaptation
    assert report.before is None
    assert (report.rows, report.held_back, report.chosen) == (1, 0, False)
    assert "too few rows" in report.words
    assert report.lr == pytest.approx(model.description.adaptation.lr)


def test_a_few_rows_judge_but_do_not_choose(model, own):
    report = model.adapt(own.iloc[:6]).adaptation
    assert report.before is not None
    assert not report.chosen


def test_with_few_rows_the_words_say_what_the_table_shows(model, frame):
    for _, rows in frame.groupby("who"):
        report = model.adapt(rows.iloc[:6]).adaptation
        assert report.after["loss"] == report.curve[-1]["loss"]
        assert report.kept_shared == (not report.after["loss"] < report.before["loss"])


def test_as_many_steps_as_served_in_training_are_tried(model, own):
    longer = replace(model.description, adaptation=replace(model.description.adaptation, steps=300))
    report = Predictor(longer, model.model, model.params).adapt(own).adaptation
    assert [row["steps"] for row in report.curve] == [0, 1, 2, 5, 10, 20, 50, 300]


def test_numbers_are_scored_in_their_own_units(regression):
    model, data = regression
    own = data[data["who"] == "p2"]
    report = model.adapt(own, steps=1).adaptation
    errors = model.predict(own) - own["score"]
    assert report.before["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)


def test_clients_alone_adapt_in_their_own_way(run, own):
    alone = hs.load(run[0].record.path / "alone" / "model.safetensors")
    mine = alone.adapt(own)
    assert mine.adaptation.lr is None
    assert [row["steps"] for row in mine.adaptation.curve] == [0, 1]


@pytest.mark.parametrize(
    ("label", "said"),
    [("perhaps", "a class that the model does not know .'perhaps'; it knows no, yes"), (None, "no label")],
)
def test_rows_whose_labels_cannot_be_learned_are_left_out(model, own, label, said):
    with pytest.raises(hs.UsageError, match=f"24 of 24 rows have {said}.*the first is row 1 of"):
        model.adapt(own.assign(likes=label))
    some = own.copy()
    some.iloc[3, some.columns.get_loc("likes")] = label
    report = model.adapt(some, steps=1, lr=0.1).adaptation
    assert report.rows == len(own) - 1
    assert re.fullmatch(f"Row 4 of the table has {said}.*left out.", report.notes[0])
    without = model.adapt(own.drop(own.index[3]), steps=1, lr=0.1)
    for one, other in zip(
        *map(jax.tree.leaves, (model.adapt(some, steps=1, lr=0.1).params, without.params)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_numbers_that_cannot_be_learned_are_named(regression):
    model, data = regression
    own = data[data["who"] == "p2"].copy()
    own.iloc[2, own.columns.get_loc("score")] = np.nan
    own.iloc[4, own.columns.get_loc("score")] = np.inf
    with pytest.raises(hs.UsageError, match="row 5 of the table has the label inf"):
        model.adapt(own)


def test_a_step_size_that_goes_astray_on_its_way_is_not_chosen():
    """The loss of the larger size is the least in the end, after it has grown to ten times what it was."""
    losses = np.array([[[1.0], [1.0]], [[0.8], [10.0]], [[0.6], [0.1]]])
    for steady, best in ((True, [2, 0]), (False, [2, 1])):
        judged = _Judged([{"loss": each} for each in losses], np.array([5]), steady=steady)
        assert judged.best().tolist() == best


def test_labels_may_be_called_otherwise(model, own):
    renamed = own.rename(columns={"likes": "answer"})
    with pytest.raises(hs.UsageError, match="'likes'"):
        model.adapt(renamed)
    assert model.adapt(renamed.iloc[:1], label="answer").adaptation.rows == 1


def test_no_row_is_held_back_that_is_the_only_one_of_its_class():
    folds = _folds(np.array([0, 0, 0, 1, 2, 2]), True, 0)
    assert sorted(np.concatenate(folds)) == [0, 1, 2, 4, 5]
    assert _folds(np.array([0, 1, 2]), True, 0) == []


def test_classes_of_a_clients_own_are_learned_by_their_means(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(9), 20).astype(np.int32)
    x = rng.normal(size=(len(y), 2)).astype(np.float32) + 5 * np.stack([y % 3, y // 3], axis=1)
    rows = [np.flatnonzero(y // 3 == client) for client in range(3)]
    samples = hs.data.Samples("points", x.astype(np.float32), y, tuple("abcdefghi"))
    federation = hs.Federation.from_episodes(samples, rows, Episodes(ways=3, shots=2, queries=5), held_out=1)
    experiment = hs.Experiment(
        hs.ProtoNet(batch_size=15, inner_batch_size=6), hs.Prototypes(hs.MLP(2, 4, hidden=(6,)), ways=3), federation,
        rounds=2, cohort=2, backend="vmap",
    )  # fmt: skip
    shared = hs.load(experiment.run(tmp_path / "run").record.path / "ProtoNet" / "model.safetensors")
    with pytest.raises(hs.UsageError, match="Adapt it first"):
        shared.predict(x)
    own = {"x": x[rows[2]], "y": np.array(list("abcdefghi"))[y[rows[2]]]}
    mine = hs.load(shared.adapt(own).save(tmp_path / "mine.safetensors"))
    embedded = np.asarray(shared.model.apply(shared.params, own["x"]))
    means = np.stack([embedded[own["y"] == name].mean(axis=0) for name in "ghi"])
    nearest = np.argmin(((embedded[:, None] - means) ** 2).sum(axis=-1), axis=1)
    assert list(mine.predict(own["x"])) == ["ghi"[i] for i in nearest]


def test_words_say_why_a_model_is_adapted_that_is_right_less_often(model):
    metric = next(metric for metric in model.problem.metrics if metric.name == "accuracy")
    scores = {"loss": 1.2, "accuracy": 0.6}, {"loss": 1.1, "accuracy": 0.5}
    assert _words(model.problem, metric, 5, 0.1, *scores, False, 20).endswith("how sure the model is, too.")
    assert "decides" not in _words(model.problem, metric, 5, 0.1, scores[0], {**scores[0], "loss": 1.1}, False, 20)


def test_rows_of_one_class_do_not_choose(model, frame):
    """The more steps towards it, the better they would find them."""
    liked = frame[frame["likes"] == "yes"].iloc[:20]
    report = model.adapt(liked).adaptation
    rule = model.description.adaptation
    assert not report.chosen
    assert [row["steps"] for row in report.curve] == [0, rule.steps]
    assert report.notes[-1].startswith("All 20 rows are of the class yes")
    assert not any("All" in note for note in model.adapt(frame.iloc[:20]).adaptation.notes)


def test_labels_of_a_frame_may_be_written_as_a_spreadsheet_writes_them():
    """The file that the frame was read from would be taken."""
    target, source = Target("price", mean=34.0, scale=100.0), TableSource("the table", pa.table({}))
    rows = np.arange(2)
    assert target.standardised(pa.array(["1,234", "$34"]), source, rows).tolist() == [12.0, 0.0]
    with pytest.raises(UsageError, match="the label 'price' holds string, no numbers"):
        target.standardised(pa.array(["1,234", "dear"]), source, rows)
