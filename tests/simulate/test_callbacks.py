import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.errors import Diverged, UsageError
from headstart.simulate import Callback, EarlyStopping, Evaluated, Evaluation, sweep, train
from headstart.simulate.journal import FolderJournal
from tests import toy

ALGORITHM = hs.per_fedavg(batch_size=4, local_steps=2, inner_lr=0.3, outer_lr=0.2)
OPTIONS = {"rounds": 6, "cohort": 3, "evaluation": Evaluation(every=4, steps=(0, 1))}


class Witness(Callback):
    """Writes down what it is told; stops at some event of some round."""

    def __init__(self, stop=None):
        self.told, self.stop = [], stop

    def on_start(self, run, rounds):
        self.told.append(("start", run.round, rounds))

    def on_chunk(self, progress):
        self.loss = progress.loss
        self.params = np.asarray(progress.state.server.params["weight"])
        self.told.append(("chunk", progress.round, progress.table["round"].to_pylist()))
        return "as asked" if self.told[-1][:2] == self.stop else None

    def on_evaluation(self, evaluated):
        self.told.append(("evaluation", evaluated.round, sorted(set(evaluated.table["round"].to_pylist()))))
        return "as asked" if self.told[-1][:2] == self.stop else None

    def on_end(self, result):
        self.told.append(("end", result))

    def on_error(self, error):
        self.told.append(("error", type(error)))


def test_what_is_told_and_when():
    witness = Witness()
    result = train(ALGORITHM, toy.LOGISTIC, toy.federation(), chunk=3, callbacks=[witness], **OPTIONS)
    assert witness.told == [
        ("start", 0, 6),
        ("evaluation", 0, [0]),
        ("chunk", 3, [0, 1, 2]),
        ("chunk", 4, [3]),
        ("evaluation", 4, [4]),
        ("chunk", 6, [4, 5]),
        ("evaluation", 6, [6]),
        ("end", result),
    ]
    np.testing.assert_array_equal(witness.params, result.params["weight"])
    assert witness.loss == result.history["loss"].to_pylist()[-1]
    assert result.stopped is None


@pytest.mark.parametrize(("event", "rounds"), [(("evaluation", 0), 0), (("chunk", 3), 3), (("evaluation", 4), 4)])
def test_a_reason_stops_a_run_which_can_go_on(tmp_path, event, rounds):
    witness, other = Witness(event), Witness()
    options = OPTIONS | {"chunk": 3}
    setting = (ALGORITHM, toy.LOGISTIC, toy.federation())
    stopped = train(*setting, journal=FolderJournal(tmp_path, 1), callbacks=[witness, other], **options)
    assert (stopped.rounds, stopped.stopped, stopped.history.num_rows) == (rounds, "as asked", rounds)
    assert witness.told[:-1] == other.told[:-1], "all are told, whoever stops it"
    whole = train(*setting, **options)
    again = Witness()
    resumed = train(*setting, journal=FolderJournal(tmp_path, 1), callbacks=[again], **options)
    assert again.told[0] == ("start", rounds, 6)
    toy.assert_same_bits(resumed.params, whole.params)
    assert resumed.table.equals(whole.table)


def test_an_error_is_told():
    witness = Witness()
    wild = hs.fedavg(batch_size=4, local_steps=4, outer_lr=1e30)
    problem = hs.CustomProblem(toy.start, lambda params, batch: ((batch.x @ params["weight"]) ** 2).mean())
    with pytest.raises(Diverged):
        train(wild, problem, toy.federation(), callbacks=[witness], **OPTIONS)
    assert witness.told[-1] == ("error", Diverged)


def test_callbacks_of_a_sweep_see_all_runs():
    witness = Witness(("evaluation", 4))
    grid = [hs.per_fedavg(batch_size=4, local_steps=2, inner_lr=0.3, outer_lr=lr) for lr in (0.1, 0.2)]
    done = sweep(grid, toy.LOGISTIC, toy.federation(), seeds=(0, 1, 2), callbacks=[witness], **OPTIONS)
    assert witness.params.shape == (6, 3)
    assert (done.stopped, done.loss.shape) == ("as asked", (6, 4))
    np.testing.assert_allclose(witness.loss, done.loss[:, -1].mean(), rtol=1e-6)
    assert witness.told[-1] == ("end", done)


class Scripted:
    problem = hs.Classification(hs.MLP(inputs=1, outputs=2, hidden=()))
    round = 0


@pytest.mark.parametrize(
    ("metric", "values", "stops_after"),
    [
        ("accuracy", [0.1, 0.2, 0.2, 0.3, 0.3, 0.2, 0.3], 5),
        ("loss", [3, 2, 2.5, 1, 1, 4, 0], 5),
        ("loss", [3, 2, 1, 0.5, 0.4, 0.3, 0.2], None),
    ],
)
def test_early_stopping_waits_so_long_for_better(metric, values, stops_after):
    stopping = EarlyStopping(metric, steps=1, group="held-out", patience=2, least=0.05)
    for _ in range(2):  # a second run begins anew
        stopping.on_start(Scripted, 10)
        reasons = []
        for value in values:
            table = pa.table({"steps": [0, 1, 1], "held_out": [True, True, False], metric: [9.0, float(value), 9.0]})
            reasons.append(stopping.on_evaluation(Evaluated(0, table, None)))
        first = next((i for i, reason in enumerate(reasons) if reason), None)
        assert first == stops_after


def test_early_stopping_ends_training_at_an_evaluation():
    still = hs.fedavg(batch_size=4, outer_lr=0.0)
    stopping = EarlyStopping("loss", steps=0, patience=1, least=1e-3)
    result = train(still, toy.LOGISTIC, toy.federation(), callbacks=[stopping], **OPTIONS)
    assert result.rounds == 4
    assert result.stopped == "loss has not become better in 1 evaluation"


@pytest.mark.parametrize(("asked", "words"), [(("f1", 0), "has no metric 'f1'"), (("loss", 5), "after 5 steps")])
def test_early_stopping_on_what_is_not_evaluated(asked, words):
    with pytest.raises(UsageError, match=words):
        train(ALGORITHM, toy.LOGISTIC, toy.federation(), callbacks=[EarlyStopping(*asked)], **OPTIONS)
