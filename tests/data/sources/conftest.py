"""No test here sees the user's own folders, and none reaches beyond this machine."""

import pytest

from tests.data.sources.server import Server


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """An empty cache."""
    home = tmp_path_factory.mktemp("home")
    for name in ("HEADSTART_DATA", "HEADSTART_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HEADSTART_CACHE", str(home / "cache"))
    monkeypatch.setattr("headstart.data.sources.fetch.WAIT_SECONDS", 0.001)
    return home / "cache"


@pytest.fixture
def server():
    with Server() as running:
        yield running
