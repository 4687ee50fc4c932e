"""What a federation has on its disks beside what the simulator computed."""

import json
from pathlib import Path

import jax
import numpy as np

from headstart.deploy.agreement import Agreement
from headstart.deploy.federated import Ledger
from headstart.deploy.state import Memories
from headstart.experiment import RunResult
from headstart.simulate.files import named_leaves, read_arrays
from tests.deploy.real.trial import ROUNDS


def assert_simulated(server: Path, sites: Path, simulated: RunResult) -> None:
    """Every method's server and its clients' memories, on the disks of server and sites, are the simulator's."""
    agreement = Agreement.from_json(json.loads((server / "agreement.json").read_text()))
    run = json.loads((server / "federation.json").read_text())["run"]
    for label, result in simulated.results.items():
        stored, _ = read_arrays(server / "run" / label / "checkpoints" / f"{ROUNDS:09d}.safetensors")
        for name, leaf in named_leaves(result.server):
            _close(stored[f".server{name}"], leaf, f"{label} {name}")
        ledger = Ledger(*(stored[f".clients.{field}"] for field in Ledger._fields))
        tags = ledger.tags(list(agreement.sites))
        for site, numbers in agreement.sites.items():
            memories = Memories(sites / site / "state" / run / label, jax.tree.map(lambda a: a[0], result.clients))
            for client in (number for number in numbers if number < len(agreement.layout.names) - 1):
                own = jax.tree.map(lambda a, client=client: a[client], result.clients)
                for (name, got), (_, want) in zip(
                    named_leaves(memories.read(client, tags[site])), named_leaves(own), strict=True
                ):
                    _close(got, want, f"{label} {client} {name}")


def _close(got, want, what: str) -> None:
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert np.abs(got - want).max(initial=0) <= 1e-6 * np.abs(want).max(initial=0), what
