import pytest

from tests.deploy.real.trial import ROUNDS, RunningTrial, write_experiment


@pytest.fixture(scope="session")
def trial(tmp_path_factory):
    """Three sites that train for a few rounds, with keys, TLS and the gateway."""
    folder = tmp_path_factory.mktemp("trial")
    running = RunningTrial(folder / "fed", write_experiment(folder, rounds=ROUNDS), sites=3)
    try:
        running.until(lambda: (running.folder / "server" / "roster.toml").exists())
        yield running
    finally:
        running.stop()
