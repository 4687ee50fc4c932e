"""kill -9 at any moment of a tuned run, its search included: what is resumed ends with the same bits."""

import json
import random
import subprocess
import sys
import time

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


def _start(*arguments):
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


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
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.name.startswith(".")}


def _killed(folder, process, rng, blind):
    """Kill at a moment soon after something was written, or at any moment."""
    before, began = _marks(folder), time.monotonic()
    patience = rng.uniform(1, 8) if blind else 300
    while process.poll() is None and time.monotonic() - began < patience:
        if not blind and _marks(folder) - before:
            time.sleep(rng.uniform(0, 0.2))
            break
        time.sleep(0.01)
    process.kill()
    process.communicate()
    return process.returncode == -9


def _resumed(folder, asked):
    return _start("--resume", str(folder)) if (folder / "run.json").exists() else _start(*asked, "--out", str(folder))


def _kills(tmp_path, rounds, kills, blind_share, *more):
    rng = random.Random(0)
    asked = _asked(tmp_path, rounds, *more)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = _start(*asked, "--out", str(whole))
    out, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, out
    process, during_search = _start(*asked, "--out", str(killed)), 0
    for number in range(kills):
        assert _killed(killed, process, rng, rng.random() < blind_share), f"it ended by itself after {number} kills"
        manifest = killed / "run.json"
        during_search += manifest.exists() and "tuning" not in json.loads(manifest.read_text())
        process = _resumed(killed, asked)
    out, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, out
    assert_same_run(whole, killed)
    one, other = (json.loads((folder / "run.json").read_text()) for folder in (whole, killed))
    assert one["tuning"] == other["tuning"]
    assert one["config"] == other["config"]
    assert not list(killed.rglob("*.partial")), "no half-written file is left"
    return during_search


def test_kills_change_no_bit(tmp_path):
    """A kill each while the search goes on, when it has found something, and in training."""
    assert _kills(tmp_path, 8, 3, 0.0, "baselines={}") >= 1


@pytest.mark.slow
def test_fifty_kills_change_no_bit(tmp_path):
    assert _kills(tmp_path, 200, 50, 0.3) >= 3
