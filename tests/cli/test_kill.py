"""kill -9 at any moment loses at most a chunk and corrupts nothing."""

import random
import subprocess
import sys
import time

import pytest

import headstart as hs
from tests.cli.test_run import assert_same_run

COMMAND = [sys.executable, "-c", "from headstart.cli import main; main()", "run"]
SETTINGS = {
    "per-fedavg": [],
    "moml": ["algorithm.name=moml", "algorithm.batch_size=5", "train.memory=disk"],
}
EVERYWHERE = ["baselines={}", "train.chunk=5", "evaluate.every=100"]


def _start(*arguments):
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(
    ("method", "kills", "rounds"),
    [
        ("per-fedavg", 4, 1000),
        ("moml", 3, 600),
        pytest.param("per-fedavg", 20, 4000, marks=pytest.mark.slow),
        pytest.param("moml", 6, 1200, marks=pytest.mark.slow),
    ],
)
def test_kills_change_no_bit(tiny, tmp_path, method, kills, rounds):
    """Memories kept on disk are part of what must come back."""
    rng = random.Random(0)
    chosen = [*SETTINGS[method], *EVERYWHERE, f"train.rounds={rounds}"]
    settings = [part for setting in chosen for part in ("--set", setting)]
    whole = _start(str(tiny), "--out", str(tmp_path / "whole"), *settings)
    out, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, out

    killed = tmp_path / "killed"
    process = _start(str(tiny), "--out", str(killed), *settings)
    lost = []
    for _ in range(kills):
        _wait_for_progress(process, killed, method, _newest(killed, method))
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        out, _ = process.communicate()
        assert process.returncode == -9, f"it ended by itself: {out}"
        lost.append(abs(_newest(killed, method) - _recorded(killed, method)))
        process = _start("--resume", str(killed))
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert max(lost) <= 5, "the tables and the newest checkpoint never differ by more than a chunk"
    assert_same_run(tmp_path / "whole", killed)
    assert not list(killed.rglob("*.partial")), "no half-written file is left"


def _newest(path, method):
    return max((int(p.stem) for p in (path / method / "checkpoints").glob("*.safetensors")), default=-1)


def _recorded(path, method):
    history = hs.load_run(path).methods[method].history
    return 0 if history is None else history.num_rows


def _wait_for_progress(process, path, method, before):
    deadline = time.monotonic() + 120
    while _newest(path, method) <= before:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)
