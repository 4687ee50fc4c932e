"""What a run with noise on its wire says of the privacy it costs."""

import math

import pytest

import headstart as hs
from headstart.report.comparison import comparison_notes
from headstart.wire import Noise, privacy_spent, wire
from tests.experiment.conftest import TINY, Stopping

NOISY = ("wire.clip=0.1", "wire.noise=2.0", "wire.delta=1e-4")


def _noisy(*changes):
    return hs.Experiment.from_toml(TINY, settings=[*NOISY, *changes])


def test_a_run_knows_the_privacy_of_its_rounds_and_cohorts(tmp_path):
    """Written or not, and in the record; 4 rounds of 3 of the 6 clients that train."""
    want = privacy_spent(wire(clip=0.1, noise=2.0, delta=1e-4), rounds=4, cohort=3, clients=6)
    kept, written = _noisy().run(), _noisy().run(tmp_path / "run")
    assert (want.delta, want.kind) == (1e-4, "central")
    assert 0 < want.epsilon < math.inf
    assert kept.privacy == written.privacy == hs.load_run(tmp_path / "run").privacy == want
    assert comparison_notes(kept.record) == [f"Each method has {want}."]


def test_a_run_that_was_stopped_states_what_it_will_have_cost(tmp_path):
    stopped = _noisy().run(tmp_path / "run", callbacks=[Stopping(2)])
    assert stopped.stopped == "per-fedavg"
    assert "4 rounds" in str(stopped.privacy)
    assert hs.resume(tmp_path / "run").privacy == stopped.privacy


def test_noise_at_the_clients_is_stated_as_local():
    local = _noisy("wire.noise={multiplier=2.0, at='client'}").run().privacy
    want = privacy_spent(wire(clip=0.1, noise=Noise(2.0, at="client"), delta=1e-4), rounds=4, cohort=3, clients=6)
    assert local == want
    assert "local differential privacy: epsilon" in str(local)


@pytest.mark.parametrize("settings", [[], ["wire.clip=0.1"], ["wire.clip=0.1", "wire.noise=0.0"]])
def test_without_noise_nothing_is_promised(tmp_path, settings):
    run = hs.Experiment.from_toml(TINY, settings=[*settings, "baselines={}"]).run(tmp_path / "run")
    assert run.privacy is None
    assert hs.load_run(tmp_path / "run").privacy is None
    assert comparison_notes(run.record) == []
