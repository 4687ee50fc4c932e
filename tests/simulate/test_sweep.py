from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

import headstart as hs
from headstart.errors import UsageError
from headstart.metrics import Metric
from headstart.simulate import Evaluation, sweep, train
from tests import toy

SEEDS = (0, 3, 4)
GRIDS = {
    "per-fedavg": [hs.per_fedavg(inner_lr=0.2, outer_lr=lr, local_steps=2, batch_size=4) for lr in (0.1, 0.4)],
    "moml-v2": [hs.MOMLv2(inner_lr=0.2, outer_lr=0.1, averaging=b, batch_size=4) for b in (0.3, 0.9)],
}
EVALUATION = Evaluation(every=2, steps=(0, 2))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("method", "devices"), [("per-fedavg", 1), ("moml-v2", 2)])
def test_each_run_is_what_train_does(method, devices):
    grid, federation = GRIDS[method], toy.federation(held_out=1)
    done = sweep(
        grid, toy.LOGISTIC, federation, seeds=SEEDS, rounds=5, cohort=2, evaluation=EVALUATION, devices=devices
    )
    for run, (point, seed) in enumerate((p, s) for p in range(2) for s in SEEDS):
        alone = train(grid[point], toy.LOGISTIC, federation, rounds=5, cohort=2, seed=seed, evaluation=EVALUATION)
        toy.assert_close(jax.tree.map(lambda leaf, run=run: leaf[run], done.server.params), alone.params, 1e-10)
        np.testing.assert_allclose(done.loss[run], alone.history["loss"].to_numpy(), rtol=1e-10)
        mine = done.table.filter(np.asarray(done.table["run"]) == run)
        for name in alone.table.column_names:
            expected, got = (t[name].to_numpy(zero_copy_only=False) for t in (alone.table, mine))
            if name == "loss":
                np.testing.assert_allclose(got, expected, rtol=1e-10)
            else:
                assert got.tolist() == expected.tolist()
        last = np.asarray(mine["round"]) == 5
        chosen = last & (np.asarray(mine["steps"]) == 2) & np.asarray(mine["held_out"])
        score = done.scores("loss", steps=2, group="held-out")[point, SEEDS.index(seed)]
        np.testing.assert_allclose(score, np.asarray(mine["loss"])[chosen].mean())


def test_a_run_that_diverges_does_not_disturb_the_others():
    def squares(params, batch):
        return ((batch.x @ params["weight"] - batch.y) ** 2).mean()

    problem = hs.CustomProblem(toy.start, squares)
    done = sweep(
        [hs.fedavg(outer_lr=lr, local_steps=5, batch_size=4) for lr in (0.01, 1e6)], problem, toy.federation(),
        seeds=(0,), rounds=20, evaluation=Evaluation(every=10),
    )  # fmt: skip
    assert np.isfinite(done.loss[0]).all()
    assert not np.isfinite(done.loss[1, -1])
    last, best, curve = (done.scores("loss", 0, reduce=how) for how in ("last", "best", "curve"))
    assert np.isfinite(last[0]).all()
    assert best[1] <= curve[1, 0, 0]
    assert curve.shape == (2, 1, 3)


def test_tasks_that_are_grouped_are_judged_one_by_one():
    federation = hs.data.sine(clients=6, held_out=2).grouped([[0, 1, 2], [3, 4, 5]])
    problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,)))
    grid = [hs.local_bsgd(batch_size=3, tasks_per_client=3, tasks_per_step=2, outer_lr=lr) for lr in (0.01, 0.02)]
    done = sweep(grid, problem, federation, seeds=(0, 1), rounds=2, evaluation=Evaluation(every=2, batch_size=5))
    assert done.scores("loss", 1, group="held-out").shape == (2, 2)
    assert len(done.table) == 4 * 2 * 2 * 8


def test_algorithms_that_differ_in_shape_are_refused():
    with pytest.raises(UsageError, match="differ in more than numbers"):
        sweep([hs.fedavg(batch_size=2), hs.fedavg(batch_size=3)], toy.LOGISTIC, toy.federation(), seeds=(0,), rounds=1)


def test_samples_of_full_batches_are_counted():
    federation = toy.federation()
    evaluation = Evaluation(every=2, steps=(0,))
    grid = [hs.fedavg(batch_size="full", local_steps=2, outer_lr=lr) for lr in (0.1, 0.2)]
    done = sweep(grid, toy.LOGISTIC, federation, seeds=SEEDS, rounds=4, cohort=2, evaluation=evaluation)
    options = {"rounds": 4, "cohort": 2, "evaluation": evaluation}
    alone = [train(grid[0], toy.LOGISTIC, federation, seed=seed, **options).history["samples"] for seed in SEEDS]
    expected = np.mean([samples.to_numpy() for samples in alone], axis=0).cumsum()
    np.testing.assert_allclose(done.samples, [0, expected[1], expected[3]])
    assert expected[-1] > 0


def test_which_is_best_is_for_the_metric_to_say():
    def predict(params, batch):
        return params["bias"] + 0 * batch.y, batch.y

    options = {"seeds": (0,), "rounds": 6, "evaluation": Evaluation(every=1, steps=(0,))}
    for higher, best in ((True, np.max), (False, np.min)):
        bias = Metric.from_function("bias", lambda outputs, targets: outputs, higher_is_better=higher)
        problem = hs.CustomProblem(toy.start, toy.logistic_loss, predict, (bias,))
        done = sweep([hs.fedavg(batch_size=4, outer_lr=0.5)], problem, toy.federation(), **options)
        curve = done.scores("bias", 0, reduce="curve")[0, 0]
        assert len(set(curve)) > 1
        assert done.scores("bias", 0, reduce="best")[0, 0] == best(curve)


def test_a_stopped_sweep_goes_on_to_the_same_result_on_any_number_of_devices(tmp_path):
    setting = (GRIDS["moml-v2"], toy.LOGISTIC, toy.federation(held_out=1))
    options = {"seeds": SEEDS[:2], "rounds": 6, "cohort": 2, "evaluation": EVALUATION, "checkpoint_seconds": 0}

    def measure(params):
        return {"norm": (params["weight"] ** 2).sum()}

    whole = sweep(*setting, **options, measure=measure, devices=1)
    folder = tmp_path / "unit"
    part = sweep(*setting, **options, measure=measure, checkpoint=folder, callbacks=toy.stopping(3), devices=2)
    assert part.stopped
    assert 3 <= part.loss.shape[1] < 6
    assert list(folder.rglob("*.safetensors"))
    resumed = sweep(*setting, **options, measure=measure, checkpoint=folder, devices=1)
    assert not folder.exists(), "nothing is left of a sweep that is done"
    toy.assert_close(resumed.server.params, whole.server.params, 1e-5)
    np.testing.assert_allclose(resumed.loss, whole.loss, rtol=1e-5)
    np.testing.assert_allclose(resumed.measured["norm"], whole.measured["norm"], rtol=1e-5)
    np.testing.assert_array_equal(resumed.samples, whole.samples)
    assert (np.diff(resumed.seconds) > 0).all()


def _changed(name):
    """A setting like that of the test below, but for one thing."""
    federation = toy.federation(held_out=1)
    setting = {
        "algorithms": [hs.fedavg(batch_size=4, outer_lr=0.1)], "problem": toy.LOGISTIC, "federation": federation,
        "seeds": (0, 1), "rounds": 6, "cohort": 2, "weighting": "uniform", "evaluation": EVALUATION,
    }  # fmt: skip
    spoilt = eqx.tree_at(lambda clients: clients.pool.x, federation.clients, federation.clients.pool.x.at[0, 0].add(1))
    other = {
        "algorithms": [hs.fedavg(batch_size=4, outer_lr=0.2)],
        "problem": hs.CustomProblem(toy.start, lambda params, batch: 2 * toy.logistic_loss(params, batch)),
        "data": replace(federation, clients=spoilt),
        "seeds": (0, 2), "rounds": 8, "cohort": 3, "weighting": "samples", "evaluation": Evaluation(every=3),
    }  # fmt: skip
    return setting if name is None else setting | {"federation" if name == "data" else name: other[name]}


@pytest.mark.parametrize(
    "name", ["algorithms", "problem", "data", "seeds", "rounds", "cohort", "weighting", "evaluation"]
)
def test_another_sweep_of_the_same_shapes_does_not_go_on_from_a_checkpoint(tmp_path, name):
    options = {"checkpoint": tmp_path / "unit", "checkpoint_seconds": 0, "devices": 1}
    sweep(**_changed(None), **options, callbacks=toy.stopping(1))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=rf"was left by another run: it differs in {name}\."):
        sweep(**_changed(name), **options)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert sweep(**_changed(None), **options).loss.shape == (2, 6)
