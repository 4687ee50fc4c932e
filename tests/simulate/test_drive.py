"""The loop by itself, on a run that computes nothing and takes the time it is told to."""

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from headstart.simulate import Evaluation, RunState
from headstart.simulate.drive import CHUNK_SECONDS, Pace, drive
from headstart.simulate.journal import FolderJournal, Unrecorded


class Clockwork:
    """A run whose rounds take ``seconds`` each, and its first ``compiling`` more, on a clock of its own."""

    problem = None
    store = None

    def __init__(self, seconds=0.01, compiling=0.0):
        self.round, self.state = 0, RunState(jnp.zeros(()), ())
        self.now, self.seconds, self.compiling = 0.0, seconds, compiling
        self.chunks = []

    def advance(self, rounds, capacity=None):
        took = rounds * self.seconds + self.compiling
        self.compiling = 0.0
        self.now += took
        self.chunks.append((rounds, took))
        numbers = np.arange(self.round, self.round + rounds)
        self.round += rounds
        self.state = RunState(jnp.asarray(float(self.round)), ())
        return pa.table({"round": numbers, "loss": np.ones(rounds), "seconds": np.full(rounds, took / rounds)})

    def evaluate(self, evaluation):
        return pa.table({"round": [self.round], "loss": [1.0]})

    def largest_chunk(self):
        return 500


@pytest.fixture
def run_with(monkeypatch):
    def run(clockwork, rounds, journal=None, **options):
        monkeypatch.setattr("headstart.simulate.drive.time.monotonic", lambda: clockwork.now)
        evaluation = Evaluation(every=options.pop("every", rounds))
        return drive(clockwork, rounds=rounds, evaluation=evaluation, journal=journal or Unrecorded(), **options)

    return run


@pytest.mark.parametrize("seconds", [0.001, 0.04, 0.3, 0.7, 40.0])
def test_no_chunk_but_one_that_compiles_takes_long(run_with, seconds):
    clockwork = Clockwork(seconds, compiling=15.0)
    run_with(clockwork, 1200)
    assert clockwork.chunks[0][0] == 1
    for rounds, took in clockwork.chunks[1:]:
        assert rounds == 1 or took <= CHUNK_SECONDS + 1e-9
    if seconds <= 0.04:
        assert len(clockwork.chunks) < 80, "and they are not too short for a quick round either"


def test_a_run_that_becomes_slow_gets_short_chunks_at_once():
    pace = Pace(None, most=512)
    for _ in range(12):
        pace.took(pace.length, 0.001 * pace.length)
    assert pace.length == 512
    pace.took(512, 51.2)
    assert pace.length == 10


def test_a_fixed_chunk_is_kept(run_with):
    clockwork = Clockwork(10.0)
    run_with(clockwork, 10, chunk=4, every=6)
    assert [rounds for rounds, _ in clockwork.chunks] == [4, 2, 4]


class Counting(Unrecorded):
    def __init__(self):
        super().__init__()
        self.kept = []

    def checkpoint(self, round_, state):
        self.kept.append(round_)


def test_checkpoints_are_so_far_apart_but_for_the_last(run_with):
    journal = Counting()
    run_with(Clockwork(1.0), 25, journal, checkpoint_seconds=10)
    assert journal.kept == [0, 10, 20, 25]


def test_what_is_told_between_checkpoints_is_not_lost(run_with, tmp_path):
    whole = Unrecorded()
    run_with(Clockwork(1.0), 25, whole, every=10)

    def stop_at(round_):
        def check(run, table):
            if run.round == round_:
                raise KeyboardInterrupt

        return check

    with pytest.raises(KeyboardInterrupt):
        run_with(Clockwork(1.0), 25, FolderJournal(tmp_path, 1), every=10, checkpoint_seconds=7, check=stop_at(18))
    resumed, journal = Clockwork(1.0), FolderJournal(tmp_path, 1)
    run_with(resumed, 25, journal, every=10, checkpoint_seconds=7)
    assert sum(rounds for rounds, _ in resumed.chunks) == 25 - 14
    assert [table.equals(other) for table, other in zip(journal.tables(), whole.tables(), strict=True)] == [True, True]
