import pytest

from tests.deploy.real.trial import ROUNDS, RunningTrial, write_experiment


def pytest_collection_modifyitems(items):
    """All that rests on the one trial runs in one process of pytest's."""
    for item in items:
        if "trial" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("trial"))


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
