"""A whole federation on this machine, as `headstart deploy up` starts it, for tests that need the real thing."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from headstart.deploy.control import SuperLink
from headstart.deploy.events import read_events
from headstart.deploy.places import ServerPlace, SitePlace
from headstart.deploy.processes import tail

ROUNDS = 3
EXPERIMENT = """
seed = 5
[data]
name = "own"
path = "people.csv"
client = "person"
label = "tall"
held_out = 1
standardize = "client"
[model]
name = "mlp"
hidden = [6]
[algorithm]
name = "per-fedavg"
inner_lr = 0.05
outer_lr = 0.05
local_steps = 2
batch_size = 8
[train]
rounds = {rounds}
cohort = 0.8
weighting = "samples"
[evaluate]
every = 100
steps = [0, 1]
{more}
"""


def write_experiment(folder: Path, rounds: int, people: int = 6, more: str = "") -> Path:
    """A small table of unequal clients, and an experiment on it."""
    rng = np.random.default_rng(1)
    parts = []
    for i in range(people):
        rows, taste = 16 + 6 * i, rng.normal(size=3)
        x = rng.normal(size=(rows, 3)) + 0.3 * taste
        said = np.where(x @ taste + 0.1 * rng.normal(size=rows) > 0, "yes", "no")
        said[:2] = ["yes", "no"]
        parts.append(pa.table({"person": [f"p{i}"] * rows, **{f"x{j}": x[:, j] for j in range(3)}, "tall": said}))
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(pa.concat_tables(parts), folder / "people.csv")
    path = folder / "experiment.toml"
    path.write_text(EXPERIMENT.format(rounds=rounds, more=more))
    return path


class RunningTrial:
    """A trial in a process of its own."""

    def __init__(self, folder: Path, experiment: Path, sites: int):
        self.folder = folder
        self.experiment = experiment
        self._log = (folder.parent / "trial.log").open("wb")
        words = ["headstart", "deploy", "up", str(folder), "--experiment", str(experiment), "--sites", str(sites)]
        script = f"import sys; sys.argv = {words!r}; from headstart.cli import main; main()"
        self.process = subprocess.Popen([sys.executable, "-c", script], stdout=self._log, stderr=subprocess.STDOUT)

    @property
    def server(self) -> ServerPlace:
        return ServerPlace(self.folder / "server")

    @property
    def gate(self) -> str:
        """Where the gateway is."""
        return f"127.0.0.1:{self.server.door().port}"

    def site(self, name: str) -> SitePlace:
        return SitePlace.read(self.folder / "sites" / name)

    def link(self) -> SuperLink:
        """The SuperLink, as its operator reaches it."""
        return SuperLink(self.server.door().superlink_port, self.server.authority)

    def events(self, kind: str | None = None) -> list[dict]:
        return [event for event in read_events(self.server.folder) if kind in (None, event["event"])]

    def until(self, condition, seconds: float = 600.0):
        """Wait for something to be true of the trial."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            if self.process.poll() is not None or time.monotonic() > end:
                self._log.flush()
                raise AssertionError(f"the trial is {self.process.poll()}:\n{tail(self.folder.parent / 'trial.log')}")
            time.sleep(0.1)
        return found

    def wait(self, seconds: float = 900.0) -> int:
        """Until the trial has ended by itself."""
        return self.process.wait(seconds)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._log.close()
