"""A table of 10 million rows: loading and dealing it out against reading it alone; memory against what was stated.

    python -m benchmarks.table_loading [--rows 10000000] [--clients 10000] [--repeats 3]

Bars: at most twice the time of reading, and no more memory than stated.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.common import interleaved
from headstart.data import tables

FEATURES = 8
LABELS = ("run", "sit", "stand", "walk")


def _write(folder: Path, rows: int, clients: int) -> list[Path]:
    """The same random people as Parquet and as CSV."""
    rng = np.random.default_rng(0)

    def named(numbers: np.ndarray, names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(names)).cast(pa.string())

    table = pa.table(
        {
            "person": named(rng.integers(0, clients, rows), [f"person{i:06d}" for i in range(clients)]),
            "activity": named(rng.integers(0, len(LABELS), rows), list(LABELS)),
            **{f"f{j}": rng.normal(size=rows) for j in range(FEATURES)},
        }
    )
    parquet, csv = folder / "people.parquet", folder / "people.csv"
    pa.parquet.write_table(table, parquet)
    pa.csv.write_csv(table, csv)
    return [parquet, csv]


def _read(path: Path) -> int:
    table = pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    return table.num_rows


def _load(path: Path) -> int:
    return tables.table(path, client="person", label="activity").total


def _peak(path: Path) -> int:
    """Bytes that loading takes at its peak, in a process of its own, on top of what that takes before."""
    call = [sys.executable, "-m", "benchmarks.table_loading", "--peak-of", str(path)]
    return int(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def _resident() -> int:
    """The most memory that this process had; a parent's maximum, which getrusage passes on, is not in it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for a quiet machine")
    parser.add_argument("--folder", type=Path, help="where the tables go; left out, a temporary folder")
    parser.add_argument("--peak-of", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_of:
        jax.numpy.zeros(1).block_until_ready()
        before = _resident()
        _load(arguments.peak_of)
        print(_resident() - before)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for path in _write(Path(folder), arguments.rows, arguments.clients):
            stated, peak = tables.memory_needed(path), _peak(path)
            sides = {"read": lambda path=path: _read(path), "load": lambda path=path: _load(path)}
            seconds = interleaved(sides, arguments.repeats, arguments.patience)
            print(
                f"{path.suffix[1:]:8} {arguments.rows:,} rows, {path.stat().st_size / 1e9:.2f} GB: "
                f"read {seconds['read']:.2f} s, loaded and dealt out {seconds['load']:.2f} s, "
                f"ratio {seconds['load'] / seconds['read']:.2f} (bar: 2); "
                f"memory stated {stated / 1e9:.2f} GB, at the peak {peak / 1e9:.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()
