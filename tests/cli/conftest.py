"""Running the command in this process, on an experiment of a second."""

import sys

import pytest

from headstart.cli import main

TINY = """
seed = 3

[data]
name = "sine"
clients = 6
held_out = 2
query_size = 20

[model]
name = "mlp"
hidden = [8]
activation = "relu"

[algorithm]
name = "per-fedavg"
local_steps = 2
batch_size = 5

[baselines.fedavg]
name = "fedavg"

[train]
rounds = 6
cohort = 0.5
backend = "vmap"
chunk = 2

[evaluate]
every = 3
batch_size = 5
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def headstart(monkeypatch, capsys):
    """Call the command: exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, " ".join(captured.err.split())

    return call
