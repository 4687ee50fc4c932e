"""Suites run one after the other, each in a process of its own, and what they found as one record."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headstart.bench.cases import Settings
from headstart.bench.suites import SUITES, suite
from headstart.bench.turns import cores
from headstart.errors import CannotWrite, UsageError

__all__ = ["Bench", "bench", "load_bench"]

PACKAGES = ("jax", "jaxlib", "torch", "flax", "equinox", "numpy")
FORMAT = 1


@dataclass(frozen=True)
class Bench:
    """What was measured, and where."""

    machine: dict[str, Any]
    suites: dict[str, dict[str, Any]]
    """By name: its title, and its cases."""

    @property
    def missed(self) -> list[str]:
        """Cases with a bar that does not hold."""
        return [
            f"{name}: {case['case']}"
            for name, found in self.suites.items()
            for case in found["cases"]
            if any(bar["holds"] is False for bar in case["bars"])
        ]

    def joined(self, other: "Bench") -> "Bench":
        """With another's suites in place of its own of the same name."""
        return Bench(other.machine, self.suites | other.suites)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        record = {"format": FORMAT, "machine": self.machine, "suites": self.suites}
        try:
            Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise CannotWrite(f"{path} cannot be written: {error.strerror}.", "Give another --out.") from error


def load_bench(path: str | Path) -> Bench:
    """A record as `Bench.save` wrote it."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise UsageError(f"{path} is of format {record['format']}, not {FORMAT}.", "Measure again.")
        return Bench(record["machine"], record["suites"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Give a file that --out wrote.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no record of `headstart bench`.", "Give a file that --out wrote.") from error


def bench(
    names: Sequence[str] = SUITES,
    *,
    quick: bool = False,
    data: str | Path | None = None,
    repeats: int = 5,
    patience: float = 30.0,
    watch: Callable[[str, dict[str, Any]], None] = lambda suite, case: None,
) -> Bench:
    """Measure some suites, or all; ``watch`` is told of every case that is done.

    PyTorch's sides are left out where it is not installed. ``data`` is a folder with real data, such as
    ``mnist.npz``; without it, and without the variable HEADSTART_DATA, random data of the same shape is used. A case
    waits up to ``patience`` seconds for other processes to be quiet.
    """
    titles = {name: suite(name).TITLE for name in names}
    folder = data or os.environ.get("HEADSTART_DATA") or None
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder} with data.", "Mend --data or HEADSTART_DATA, or leave it out.")
    settings = Settings(quick, None if folder is None else Path(folder).absolute(), repeats, patience)
    found: dict[str, dict[str, Any]] = {}
    for name, title in titles.items():
        found[name] = {"title": title, "quick": quick, "cases": []}
        for case in _in_a_process(name, settings):
            found[name]["cases"].append(case)
            watch(name, case)
    return Bench(_machine(), found)


def _in_a_process(name: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """The cases of a suite as they are done. A process of its own has devices, memory and programs of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", "headstart.bench", name, json.dumps(settings._asdict(), default=str)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
            if process.wait() != 0:
                complaints.seek(0)
                raise UsageError(
                    f"The suite {name} ended with an error: {complaints.read().strip()[-2000:]}",
                    f"Run `python -m headstart.bench {name}` by itself to see where.",
                )
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _machine() -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
