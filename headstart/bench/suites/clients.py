"""(g) Federations of a thousand to a million clients: a round must not notice."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from headstart.algorithms import per_fedavg
from headstart.bench.cases import Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.turns import cores
from headstart.data import Federation
from headstart.data.rows import RowLists
from headstart.models import MLP
from headstart.problems import Classification, Examples
from headstart.simulate import Evaluation, Simulation

__all__ = ["TITLE", "cases"]

TITLE = "Clients: 10 samples each on disk, 10 clients x 10 steps a round, batches of 8, MLP 80-60"
FEW, SIZES = 1_000, (10_000, 100_000, 1_000_000)
SAMPLES, TRAINING, FEATURES, CLASSES = 10, 8, 32, 10
COHORT, STEPS = 10, 10
ROUNDS = 50
BLOCK = 100_000


def cases(settings: Settings) -> Iterator[Case]:
    """A round with more and more clients, beside a round with a thousand; the first round of the most."""
    few, sizes, rounds = (20, (200,), 2) if settings.quick else (FEW, SIZES, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        for clients in (few, *sizes):
            _write(Path(folder), clients)

        def ours(clients: int) -> Side:
            simulation = _simulation(Path(folder), clients)
            return Side(lambda: simulation.advance(rounds, rounds), rounds, round_flops(simulation))

        def first() -> Side:
            simulation = _simulation(Path(folder), sizes[-1])

            def run() -> None:
                simulation.evaluate(Evaluation())
                simulation.advance(1, rounds)

            return Side(run)

        for clients in sizes:
            others = {f"{few:,} clients": partial(ours, few)}
            yield Case(f"{clients:,} clients", "round", partial(ours, clients), others, _bars(clients, few))
        yield Case(
            f"{sizes[-1]:,} clients, until the first round", "start, with 10,000 evaluated", first,
            bars=(Bar("seconds", 12),), once=True,
        )  # fmt: skip


def _bars(clients: int, few: int) -> tuple[Bar, ...]:
    return (Bar("ratio", 1.1, f"{few:,} clients"),) if clients == SIZES[-1] else ()


def _write(folder: Path, clients: int) -> None:
    """Samples in random order, as a table may have them, and whose they are."""
    rng = np.random.default_rng(0)
    rows = clients * SAMPLES
    x = np.lib.format.open_memmap(folder / f"{clients}.x.npy", "w+", np.float32, (rows, FEATURES))
    for start in range(0, rows, BLOCK):
        x[start : start + BLOCK] = rng.random((min(BLOCK, rows - start), FEATURES), np.float32)
    x.flush()
    np.save(folder / f"{clients}.y.npy", rng.integers(0, CLASSES, rows, dtype=np.int32))
    np.save(folder / f"{clients}.owner.npy", np.repeat(np.arange(clients, dtype=np.int32), SAMPLES))


def _simulation(folder: Path, clients: int) -> Simulation:
    x, y = (np.load(folder / f"{clients}.{name}.npy", mmap_mode="r") for name in ("x", "y"))
    rows = RowLists.by_owner(np.load(folder / f"{clients}.owner.npy"), clients)
    training = np.arange(len(rows.rows)) % SAMPLES < TRAINING
    parts = [
        RowLists(rows.rows[mask], np.arange(clients + 1) * int(mask[:SAMPLES].sum())) for mask in (training, ~training)
    ]
    federation = Federation.from_arrays(Examples(x, y), *parts)
    problem = Classification(MLP(FEATURES, CLASSES))
    return Simulation(
        per_fedavg(local_steps=STEPS, batch_size=TRAINING), problem, federation, cohort=COHORT, backend="sharded",
        devices=cores(),
    )  # fmt: skip
