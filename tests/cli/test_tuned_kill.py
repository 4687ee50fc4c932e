"""kill -9 at any moment of a tuned run, its search included: what is resumed ends with the same bits."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from tests.cli.test_run import assert_same_run

COMMAND = [sys.executable, "-c", "from headstart.cli import main; main()", "run"]
SETTINGS = [
    "train.backend=vmap", "train.cohort=4", "train.chunk=2", "model.hidden=[4]", "algorithm.local_steps=2",
    "algorithm.curvature=first-order", "evaluate.every=4",
]  # fmt: skip


def _start(programs, *arguments):
    """The command, which keeps the programs that it compiles in a folder for those that come after it."""
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.Popen(
        [*COMMAND, *arguments], env={**os.environ, **kept}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _asked(folder, rounds, *more):
    path = folder / "people.csv"
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 10)
    x = rng.normal(size=(120, 2))
    y = x @ [1.0, -1.0] + 0.3 * who + 0.1 * rng.normal(size=120)
    table = pa.table({"who": [f"p{i}" for i in who], "a": x[:, 0], "b": x[:, 1], "y": y})
    pyarrow.csv.write_csv(table, path)
    settings = [part for setting in [*SETTINGS, f"train.rounds={rounds}", *more] for part in ("--set", setting)]
    return ["--data", str(path), "--client", "who", "--label", "y", *settings]


def _marks(folder):
    """What is there that was not there a moment ago."""
    while True:
        # Folders come and go.
        with suppress(FileNotFoundError):
            return {path.relative_to(folder) for path in folder.rglob("*") if not path.name.startswith(".")}


def _killed(folder, process, rng, blind):
    """Kill at a moment soon after something was written, or at any moment; whether it had not ended by itself."""
    before, began = _marks(folder), time.monotonic()
    patience = rng.uniform(1, 10) if blind else 300
    while process.poll() is None and time.monotonic() - began < patience:
        if not blind and _marks(folder) - before:
            time.sleep(rng.uniform(0, 0.2))
            break
        time.sleep(0.01)
    process.kill()
    out, _ = process.communicate()
    assert process.returncode in (0, -9), out
    return process.returncode == -9


def _resumed(programs, folder, asked):
    known = (folder / "run.json").exists()
    return _start(programs, *(["--resume", str(folder)] if known else [*asked, "--out", str(folder)]))


def _assert_same(whole, killed):
    assert_same_run(whole, killed)
    one, other = (json.loads((folder / "run.json").read_text()) for folder in (whole, killed))
    assert one["tuning"] == other["tuning"]
    assert one["config"] == other["config"]
    assert not list(killed.rglob("*.partial")), "no half-written file is left"


def _kills(tmp_path, rounds, kills, blind_share, *more):
    """Kill runs, one after the other, until so many kills are done; how many of them were during the search."""
    rng = random.Random(0)
    asked = _asked(tmp_path, rounds, *more)
    whole, killed, programs = tmp_path / "whole", tmp_path / "killed", tmp_path / "programs"
    process = _start(programs, *asked, "--out", str(whole))
    out, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, out
    done = during_search = 0
    while done < kills:
        process = _resumed(programs, killed, asked)
        if _killed(killed, process, rng, rng.random() < blind_share):
            manifest = killed / "run.json"
            during_search += manifest.exists() and "tuning" not in json.loads(manifest.read_text())
            done += 1
        else:
            _assert_same(whole, killed)
            shutil.rmtree(killed)
    process = _resumed(programs, killed, asked)
    out, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, out
    _assert_same(whole, killed)
    return during_search


def test_kills_change_no_bit(tmp_path):
    """A kill each while the search goes on, when it has found something, and in training."""
    assert _kills(tmp_path, 8, 3, 0.0, "baselines={}") >= 1


@pytest.mark.slow
def test_fifty_kills_change_no_bit(tmp_path):
    assert _kills(tmp_path, 60, 50, 0.4) >= 3
