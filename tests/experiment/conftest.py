"""An experiment of a second."""

import pytest

import headstart as hs

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

[algorithm]
name = "per-fedavg"
local_steps = 2
batch_size = 5

[baselines.fedavg]
name = "fedavg"

[train]
rounds = 4
cohort = 3
backend = "vmap"
chunk = 2

[evaluate]
batch_size = 5
"""


class Stopping(hs.Callback):
    """Ends every method's training after so many rounds."""

    def __init__(self, after):
        self.after = after

    def on_chunk(self, progress):
        return "enough" if progress.round >= self.after else None


@pytest.fixture
def tiny():
    return hs.Experiment.from_toml(TINY)
