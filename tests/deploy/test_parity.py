"""A federation of real processes: SuperLink, gateway, SuperNodes and workers; its numbers are the simulator's."""

import json
import tempfile
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.deploy.agreement import Agreement
from headstart.deploy.events import read_events
from headstart.deploy.federated import Ledger
from headstart.deploy.state import Memories
from headstart.deploy.trial import up
from headstart.simulate.files import named_leaves, read_arrays

pytestmark = pytest.mark.federation

ROUNDS = 5
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
OTHERS = ["fedavg", "fedprox", "meta-fl", "pfedme", "aruba", "reptile", "local-scgd", "local-bsgd", "maml", "scgd",
          "bspiderboost", "moml-v2", "local-only", "fedavgm", "fedadam", "fedyogi", "fedadagrad"]  # fmt: skip
EVERYONE = ["nasa", "moml"]


@pytest.fixture
def short_path():
    """A folder whose name leaves room for that of a socket, which may not be long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def people(folder, sizes=(60, 40, 75, 52, 33, 48)):
    """A table of unequal people."""
    rng = np.random.default_rng(0)
    rows = []
    for number, size in enumerate(sizes):
        x = rng.normal(0.3 * number, 1 + 0.2 * number, (size, 3))
        ill = x @ rng.normal(size=3) + 0.3 * rng.normal(size=size) > 0
        rows.append(pa.table({"who": [f"p{number}"] * size, **dict(zip("abc", x.T, strict=True)), "ill": ill}))
    pq.write_table(pa.concat_tables(rows), folder / "people.parquet")


def experiment(folder, methods, cohort=4, rounds=ROUNDS):
    people(folder)
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
rounds = {rounds}
cohort = {cohort}
weighting = "samples"
backend = "vmap"

[evaluate]
every = {rounds}
""")
    return path


def assert_simulated(trial, path, rounds=ROUNDS):
    """Every method's server and its clients' memories, on the disks of server and sites, are the simulator's."""
    simulated = hs.Experiment.from_toml(path).run()
    agreement = Agreement.from_json(json.loads((trial.server / "agreement.json").read_text()))
    run = json.loads((trial.server / "federation.json").read_text())["run"]
    for label, result in simulated.results.items():
        stored, _ = read_arrays(trial.run / label / "checkpoints" / f"{rounds:09d}.safetensors")
        for name, leaf in named_leaves(result.server):
            close(stored[f".server{name}"], leaf, f"{label} {name}")
        ledger = Ledger(*(stored[f".clients.{field}"] for field in Ledger._fields))
        tags = ledger.tags(list(agreement.sites))
        for site, numbers in agreement.sites.items():
            memories = Memories(trial.sites[site] / "state" / run / label, jax.tree.map(lambda a: a[0], result.clients))
            for client in (number for number in numbers if number < len(agreement.layout.names) - 1):
                own = jax.tree.map(lambda a, client=client: a[client], result.clients)
                for (name, got), (_, want) in zip(
                    named_leaves(memories.read(client, tags[site])), named_leaves(own), strict=True
                ):
                    close(got, want, f"{label} {client} {name}")
    return simulated


def close(got, want, what):
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert np.abs(got - want).max(initial=0) <= 1e-6 * np.abs(want).max(initial=0), what


def test_five_rounds_are_the_simulators(short_path):
    """Three methods over three sites: partial cohorts, unequal sites, clients that count by their samples."""
    path = experiment(short_path, THREE)
    trial = up(short_path / "federation", path, 3)
    simulated = assert_simulated(trial, path)
    record = hs.load_run(trial.run)
    for label, result in simulated.results.items():
        got, want = record.methods[label].table, result.table
        assert got["client"].to_pylist() == want["client"].to_pylist()
        np.testing.assert_allclose(got["loss"].to_numpy(), want["loss"].to_numpy(), rtol=1e-5)
    events = read_events(trial.server)
    assert not [event for event in events if event["event"] == "left_out"]
    for site in trial.sites.values():
        assert {model.stem for model in (site / "model").iterdir()} == set(simulated.results)


@pytest.mark.slow
@pytest.mark.parametrize(("methods", "cohort"), [(OTHERS, 4), (EVERYONE, "1.0")], ids=["cohorts", "everyone"])
def test_all_methods_are_the_simulators(short_path, methods, cohort):
    first, *others = methods
    tables = f'[algorithm]\nname = "{first}"\nbatch_size = 8\n'
    tables += "".join(f'\n[baselines.other-{name}]\nname = "{name}"\n' for name in others)
    path = experiment(short_path, tables, cohort=cohort)
    assert_simulated(up(short_path / "federation", path, 3), path)
