from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.errors import UsageError
from headstart_papers.unit import build, run_unit


def test_a_unit_is_what_train_does(sine_unit):
    result = run_unit(sine_unit())
    federation = hs.data.sine(clients=5, held_out=3)
    problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,), activation="relu"))
    for point, lr in enumerate((0.01, 0.001)):
        for seed in (0, 1):
            alone = hs.train(
                hs.maml(batch_size=2, outer_lr=lr), problem, federation, rounds=30, cohort=3, seed=seed,
                evaluation=hs.Evaluation(every=10, steps=(0, 1), batch_size=10),
            )  # fmt: skip
            expected = [row["mean"] for row in alone._rows("loss", 1, "held-out")]
            np.testing.assert_allclose(result["curves"]["error"][point][seed], expected, rtol=1e-4)
            np.testing.assert_allclose(result["final"]["error"][point][seed], expected[-1], rtol=1e-4)
    assert result["evaluated"] == [0, 10, 20, 30]
    assert result["samples"] == [0, 180, 360, 540]
    assert result["points"] == [{"outer_lr": 0.01}, {"outer_lr": 0.001}]


def test_equal_samples_decay_and_scaled_steps(sine_unit):
    unit = sine_unit(
        algorithm={"name": "local-moml", "local_steps": 5, "memory_batch_size": 4},
        grid={"outer_lr": [0.1], "averaging": [0.3, 0.5]},
        train={"samples": 1020, "cohort": 3, "decay_at": 0.75},
        step_scaled_by="averaging",
    )
    job = build(unit)
    assert job.experiment.settings.train.rounds == 10  # a client draws 5 * 3 * 2 + 4 samples a round
    for algorithm, averaging in zip(job.algorithms, (0.3, 0.5), strict=True):
        for round_, step in ((7, 0.1 * averaging), (8, 0.01 * averaging)):
            np.testing.assert_allclose(algorithm.outer_lr(round_), step, rtol=1e-6)


def test_a_run_that_diverges_is_null(sine_unit):
    result = run_unit(sine_unit(grid={"outer_lr": [1e9, 0.001]}))
    assert result["final"]["error"][0] == [None, None]
    assert None not in result["final"]["error"][1]


def test_mistakes_are_named(sine_unit):
    for settings, told in (
        ({"data": {"name": "sines"}}, "toy/sine: data.name = 'sines': there is no such dataset"),
        ({"model": {"name": "mlpp"}}, "toy/sine: model.name = 'mlpp': there is no such model"),
        ({"algorithm": {"name": "mml"}}, r"methods.maml.name = 'mml'"),
        ({"algorithm": {"name": "maml", "inner_rl": 1.0}}, r"methods.maml.inner_rl"),
    ):
        with pytest.raises(UsageError, match=told):
            build(sine_unit(**settings))


def test_the_whole_of_the_data_has_the_papers_settings(sine_unit, monkeypatch):
    unit = replace(sine_unit(), whole={"clients": 6})
    assert build(unit).experiment.federation.trained == 6
    monkeypatch.setattr("headstart_papers.unit._subset", lambda name: "half of it")
    assert build(unit).experiment.federation.trained == 5
    assert unit.fingerprint == sine_unit().fingerprint
