import tempfile
from pathlib import Path

import pytest

import headstart as hs
from tests.deploy.real.trial import RunningTrial, write_experiment


@pytest.fixture
def short_path():
    """A folder whose name leaves room for that of a socket, which may not be long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def simulated(trial):
    """The same experiment in the simulator, while the federation trains."""
    return hs.Experiment.from_toml(trial.experiment).run()


@pytest.fixture(scope="session")
def trial():
    """Three sites that train three methods for a few rounds, with keys, TLS and the gateway; for all tests together."""
    with tempfile.TemporaryDirectory() as folder:
        running = RunningTrial(Path(folder) / "fed", write_experiment(Path(folder)), sites=3)
        try:
            running.until(lambda: (running.folder / "server" / "roster.toml").exists())
            yield running
        finally:
            running.stop()
