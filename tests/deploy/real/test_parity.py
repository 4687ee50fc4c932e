"""A federation of real processes: SuperLink, gateway, SuperNodes and workers; its numbers are the simulator's."""

import json

import jax
import numpy as np
import pytest

import headstart as hs
from headstart.deploy.agreement import Agreement
from headstart.deploy.federated import Ledger
from headstart.deploy.state import Memories
from headstart.deploy.trial import up
from headstart.simulate.files import named_leaves, read_arrays
from tests.deploy.real.trial import ROUNDS, write_experiment

pytestmark = [pytest.mark.federation, pytest.mark.xdist_group("federation")]

OTHERS = ["fedavg", "fedprox", "meta-fl", "pfedme", "aruba", "reptile", "local-scgd", "local-bsgd", "maml", "scgd",
          "bspiderboost", "moml-v2", "local-only", "fedavgm", "fedadam", "fedyogi", "fedadagrad"]  # fmt: skip
EVERYONE = ["nasa", "moml"]


def assert_simulated(server, sites, simulated):
    """Every method's server and its clients' memories, on the disks of server and sites, are the simulator's."""
    agreement = Agreement.from_json(json.loads((server / "agreement.json").read_text()))
    run = json.loads((server / "federation.json").read_text())["run"]
    for label, result in simulated.results.items():
        stored, _ = read_arrays(server / "run" / label / "checkpoints" / f"{ROUNDS:09d}.safetensors")
        for name, leaf in named_leaves(result.server):
            close(stored[f".server{name}"], leaf, f"{label} {name}")
        ledger = Ledger(*(stored[f".clients.{field}"] for field in Ledger._fields))
        tags = ledger.tags(list(agreement.sites))
        for site, numbers in agreement.sites.items():
            memories = Memories(sites / site / "state" / run / label, jax.tree.map(lambda a: a[0], result.clients))
            for client in (number for number in numbers if number < len(agreement.layout.names) - 1):
                own = jax.tree.map(lambda a, client=client: a[client], result.clients)
                for (name, got), (_, want) in zip(
                    named_leaves(memories.read(client, tags[site])), named_leaves(own), strict=True
                ):
                    close(got, want, f"{label} {client} {name}")


def close(got, want, what):
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert np.abs(got - want).max(initial=0) <= 1e-6 * np.abs(want).max(initial=0), what


def test_five_rounds_are_the_simulators(trial, simulated):
    """Three methods over three sites: partial cohorts, unequal sites, clients that count by their samples."""
    assert trial.wait() == 0, trial.said()
    assert_simulated(trial.server.folder, trial.folder / "sites", simulated)
    record = hs.load_run(trial.server.run)
    for label, result in simulated.results.items():
        got, want = record.methods[label].table, result.table
        assert got["client"].to_pylist() == want["client"].to_pylist()
        np.testing.assert_allclose(got["loss"].to_numpy(), want["loss"].to_numpy(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("methods", "cohort"), [(OTHERS, 4), (EVERYONE, "1.0")], ids=["cohorts", "everyone"])
def test_all_methods_are_the_simulators(short_path, methods, cohort):
    first, *others = methods
    tables = f'[algorithm]\nname = "{first}"\nbatch_size = 8\n'
    tables += "".join(f'\n[baselines.other-{name}]\nname = "{name}"\n' for name in others)
    path = write_experiment(short_path, tables, cohort=cohort)
    trial = up(short_path / "federation", path, 3)
    assert_simulated(trial.server, short_path / "federation" / "sites", hs.Experiment.from_toml(path).run())
