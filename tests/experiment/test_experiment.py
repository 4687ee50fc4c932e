"""Experiments from TOML, tables of data and Python objects: the same run, recorded or not, resumed or refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import headstart as hs
from tests import toy
from tests.cli.test_run import assert_same_run
from tests.experiment.conftest import TINY, Stopping
from tests.toy import assert_same_bits


def _people(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(96, 3))
    return pa.table(
        {
            "person": np.repeat([f"p{i}" for i in range(8)], 12),
            "activity": np.array(["run", "sit"])[(x[:, 0] > 0).astype(int)],
            **{f"sensor{j}": x[:, j] for j in range(3)},
        }
    )


QUICK = ("train.rounds=2", "train.backend=vmap", "model.hidden=[4]")


def _objects(**changes):
    federation = hs.data.sine(clients=6, held_out=2, query_size=20)
    options = {"rounds": 4, "cohort": 3, "backend": "vmap", "chunk": 2, "evaluation": hs.Evaluation(batch_size=5)}
    return hs.Experiment(
        hs.per_fedavg(local_steps=2, batch_size=5),
        hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,))),
        federation,
        baselines={"fedavg": hs.fedavg(local_steps=2, batch_size=5)},
        seed=3,
        **{**options, **changes},
    )


def test_toml_and_objects_are_the_same_experiment(tiny):
    by_file, by_objects = tiny.run(), _objects().run()
    assert list(by_file.results) == ["per-fedavg", "fedavg"]
    assert_same_bits(by_objects.results["MetaFL"].params, by_file.results["per-fedavg"].params)
    assert_same_bits(by_objects.results["fedavg"].params, by_file.results["fedavg"].params)


def test_what_a_run_leaves_is_the_same_written_or_not(tiny, tmp_path):
    kept, written = tiny.run(), tiny.run(tmp_path / "run")
    assert kept.record.path is None
    assert written.record.path == tmp_path / "run"
    assert kept.comparison.equals(written.comparison)
    assert kept.comparison.equals(hs.load_run(tmp_path / "run").comparison)
    assert set(kept.comparison["method"].to_pylist()) == {"per-fedavg", "fedavg"}
    assert set(kept.comparison["round"].to_pylist()) == {4}
    assert kept.record.config == hs.load_run(tmp_path / "run").config
    with pytest.raises(hs.UsageError, match="results"):
        kept.record.methods["fedavg"].params(None)


def test_reports_print_a_run_that_was_not_written(tiny):
    table = hs.report.comparison_table(tiny.run().record)
    assert table.columns[0].header == "method"


def test_text_settings_and_seed():
    experiment = hs.Experiment.from_toml(TINY, settings=["train.rounds=9", "algorithm.curvature=first-order"], seed=5)
    assert experiment.config["train"]["rounds"] == 9
    assert experiment.config["algorithm"]["curvature"] == "first-order"
    assert experiment.config["seed"] == 5
    with pytest.raises(hs.UsageError, match="The text is not valid TOML"):
        hs.Experiment.from_toml("[train\nrounds = 3")


def test_nothing_is_loaded_before_it_is_needed(tmp_path):
    """A file that is not there is noticed when data is read, an unknown setting before."""
    text = TINY.replace('name = "sine"\nclients = 6\nheld_out = 2\nquery_size = 20', 'name = "own"\npath = "no.csv"')
    experiment = hs.Experiment.from_toml(text)
    with pytest.raises(hs.UsageError, match=r"no\.csv"):
        experiment.federation  # noqa: B018


@pytest.mark.parametrize("source", ["file", "arrow", "columns"])
def test_a_table_of_ones_own(tmp_path, source):
    table = _people()
    pyarrow.csv.write_csv(table, tmp_path / "people.csv")
    data = {"file": tmp_path / "people.csv", "arrow": table, "columns": table.to_pydict()}[source]
    experiment = hs.Experiment.from_table(
        data, client="person", label="activity", held_out=2, settings=QUICK, tune=False
    )
    assert experiment.config["train"]["cohort"] == 6
    assert experiment.config["algorithm"]["batch_size"] == 10, "as many as the smallest client has"
    stopped = experiment.run(tmp_path / "run", callbacks=[Stopping(1)])
    assert stopped.stopped == "per-fedavg"
    done = experiment.resume(tmp_path / "run")
    assert done.stopped is None
    assert set(done.results) == {"per-fedavg", "fedavg", "alone"}
    if source != "file":
        with pytest.raises(hs.UsageError, match="Python object"):
            hs.resume(tmp_path / "run")


def test_other_data_is_noticed(tmp_path):
    """A run is of the data that it was started with, whether that is a file or an object."""
    path = tmp_path / "people.csv"
    pyarrow.csv.write_csv(_people(), path)
    options = {"client": "person", "label": "activity", "held_out": 2, "settings": QUICK, "tune": False}
    hs.Experiment.from_table(path, **options).run(tmp_path / "file", callbacks=[Stopping(1)])
    hs.Experiment.from_table(_people(), **options).run(tmp_path / "frame", callbacks=[Stopping(1)])
    text = path.read_text()
    path.write_text(text.replace(text.splitlines()[5].split(",")[2], "0.123", 1))
    with pytest.raises(hs.UsageError, match="data has changed"):
        hs.resume(tmp_path / "file")
    with pytest.raises(hs.UsageError, match="data has changed"):
        hs.Experiment.from_table(_people(1), **options).resume(tmp_path / "frame")
    path.write_text(text)
    assert hs.resume(tmp_path / "file").stopped is None
    assert hs.Experiment.from_table(_people(), **options).resume(tmp_path / "frame").stopped is None


def test_objects_are_recorded_by_what_they_were_and_resumed_by_the_same(tmp_path):
    whole = _objects().run(tmp_path / "whole")
    assert _objects().run(tmp_path / "parts", callbacks=[Stopping(2)]).stopped == "MetaFL"
    record = json.loads((tmp_path / "parts" / "run.json").read_text())["config"]
    assert record["algorithm"]["python"] == "headstart.algorithms.meta_fl.MetaFL"
    assert record["algorithm"]["curvature"] == "exact"
    assert record["model"]["model"]["hidden"] == [8]
    assert record["data"]["python"] == "headstart.data.federation.Federation"
    with pytest.raises(hs.UsageError, match=r"Python object.*(?s:.*)experiment\.resume"):
        hs.resume(tmp_path / "parts")
    with pytest.raises(hs.UsageError, match=r"another experiment: train\.cohort was 3 and is 2"):
        _objects(cohort=2).resume(tmp_path / "parts")
    again = _objects().resume(tmp_path / "parts")
    assert_same_bits(again.results["MetaFL"].params, whole.results["MetaFL"].params)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_function_that_was_changed_is_noticed(tmp_path):
    """Its name is the same, and so is the record's; its checkpoint is of the other one."""

    def problem(scale):
        def loss(params, batch):
            return jnp.mean((batch.y - scale * params * batch.x) ** 2)

        return hs.CustomProblem(lambda key: jnp.zeros(()), loss)

    def experiment(scale):
        return hs.Experiment(
            hs.fedavg(batch_size=5), problem(scale), hs.data.sine(clients=4, held_out=1), rounds=4, cohort=2,
            backend="vmap", chunk=2, evaluation=hs.Evaluation(batch_size=5),
        )  # fmt: skip

    experiment(1.0).run(tmp_path / "run", callbacks=[Stopping(2)])
    with pytest.raises(hs.UsageError, match="differs in problem"):
        experiment(2.0).resume(tmp_path / "run")


def test_a_finished_run_gives_its_results_again(tiny, tmp_path):
    first = tiny.run(tmp_path / "run")
    again = hs.resume(tmp_path / "run")
    assert_same_bits(again.results["per-fedavg"].params, first.results["per-fedavg"].params)
    assert again.results["per-fedavg"].personalize(0) is not None
    for path in (tmp_path / "run").glob("*/checkpoints/*"):
        path.unlink()
    bare = hs.resume(tmp_path / "run")
    assert not bare.results, "what can no longer be brought back is only in the record"
    assert bare.comparison.equals(first.comparison)


def test_callbacks_may_differ_by_method(tiny):
    asked = []
    tiny.run(callbacks=lambda label: asked.append(label) or [])
    assert asked == ["per-fedavg", "fedavg"]
    stopped = tiny.run(callbacks=lambda label: [Stopping(2)] if label == "fedavg" else [])
    assert stopped.stopped == "fedavg"
    assert stopped.results["fedavg"].rounds == 2
    assert set(stopped.comparison["method"].to_pylist()) == {"per-fedavg"}


def test_mistakes_in_python(tmp_path):
    with pytest.raises(hs.UsageError, match=r"train\.cohrot.*\n.*'cohort'"):
        _objects(cohrot=3)
    with pytest.raises(hs.UsageError, match="name is taken"):
        hs.Experiment(hs.fedavg(), None, hs.data.sine(), baselines={"MetaFL": hs.fedavg()})
    with pytest.raises(hs.UsageError, match="no folder"):
        _objects(memory="disk").run()
    with pytest.raises(hs.UsageError, match="Which column is the label"):
        hs.Experiment.from_table({"a": [1, 2]}, client="a")
    with pytest.raises(hs.UsageError, match="cannot be planned"):
        _objects().planned()


def test_bfloat16_parameters_are_recorded_and_resumed(tmp_path):
    """Such models, and the memories that clients keep of them on disk."""
    inner = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))

    def short(tree):
        return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree)

    def experiment():
        problem = hs.CustomProblem(
            lambda key: short(inner.init(key)),
            lambda params, batch: inner.loss(params, short(batch)).astype(jnp.float32),
        )
        return hs.Experiment(
            hs.MOML(batch_size=5), problem, hs.data.sine(clients=4, held_out=1), rounds=4, cohort=2, chunk=2,
            memory="disk", backend="vmap", evaluation=hs.Evaluation(batch_size=5),
        )  # fmt: skip

    whole = experiment().run(tmp_path / "whole")
    experiment().run(tmp_path / "parts", callbacks=[Stopping(2)])
    parts = experiment().resume(tmp_path / "parts")
    assert_same_bits(parts.results["MOML"].params, whole.results["MOML"].params)
    assert {leaf.dtype for leaf in jax.tree.leaves(parts.results["MOML"].params)} == {jnp.dtype(jnp.bfloat16)}
    stored = parts.record.methods["MOML"].params(parts.results["MOML"].params)
    assert_same_bits(stored, whole.results["MOML"].params)


def test_a_sweep_is_the_experiment_with_every_seed():
    experiment = hs.Experiment(
        hs.fedavg(batch_size=4), toy.LOGISTIC, toy.federation(), rounds=3, cohort=2, backend="vmap",
        evaluation=hs.Evaluation(steps=(0,)),
    )  # fmt: skip
    done = experiment.sweep(seeds=(0, 1))
    alone = experiment.run().results["MetaFL"]
    together = {name: leaf[0] for name, leaf in done.server.params.items()}
    toy.assert_close(toy.to_numpy(together), toy.to_numpy(alone.params), 1e-6)
    assert done.scores("loss", steps=0).shape == (1, 2)
