"""A whole federation on this machine, as `headstart deploy up` starts it, for tests that need the real thing."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headstart.deploy.control import SuperLink
from headstart.deploy.events import read_events
from headstart.deploy.places import ServerPlace, SitePlace
from headstart.deploy.processes import tail

METHODS, ROUNDS = 3, 5
THREE = """
[algorithm]
name = "per-fedavg"
inner_lr = 0.1
outer_lr = 0.2
local_steps = 2
batch_size = 8

[baselines.silo]
name = "local-moml"
keep_memory = true
averaging = 0.7

[baselines.composed]
name = "local-scgdm"
averaging = 0.7
momentum = 0.8
"""


def write_experiment(folder: Path, methods: str = THREE, cohort: float | str = 4) -> Path:
    """An experiment on a table of unequal people: partial cohorts, and clients that count by their samples."""
    _write_people(folder, (60, 40, 75, 52, 33, 48))
    path = folder / "experiment.toml"
    path.write_text(f"""
seed = 3

[data]
name = "own"
path = "{folder / "people.parquet"}"
client = "who"
label = "ill"
held_out = 1
standardize = "client"

[model]
name = "mlp"
hidden = [8]
{methods}
[train]
rounds = {ROUNDS}
cohort = {cohort}
weighting = "samples"
backend = "vmap"

[evaluate]
every = {ROUNDS}
""")
    return path


def _write_people(folder: Path, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number, size in enumerate(sizes):
        x = rng.normal(0.3 * number, 1 + 0.2 * number, (size, 3))
        ill = x @ rng.normal(size=3) + 0.3 * rng.normal(size=size) > 0
        rows.append(pa.table({"who": [f"p{number}"] * size, **dict(zip("abc", x.T, strict=True)), "ill": ill}))
    pq.write_table(pa.concat_tables(rows), folder / "people.parquet")


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
                raise AssertionError(f"the trial is {self.process.poll()}:\n{self.said()}")
            time.sleep(0.1)
        return found

    def said(self) -> str:
        """The last of what it has printed."""
        return tail(self.folder.parent / "trial.log")

    def wait(self, seconds: float = 900.0) -> int:
        """Until the trial has ended by itself."""
        return self.process.wait(seconds)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._log.close()
