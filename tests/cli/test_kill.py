"""kill -9 at any moment loses at most a chunk and corrupts nothing."""

import random
import subprocess
import sys
import time

import headstart as hs
from tests.cli.test_run import assert_same_run

KILLS = 20
COMMAND = [sys.executable, "-c", "from headstart.cli import main; main()", "run"]
SETTINGS = ["--set", "train.rounds=4000", "--set", "train.chunk=5", "--set", "evaluate.every=100"]


def _start(*arguments):
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_twenty_kills_change_no_bit(tiny, tmp_path):
    rng = random.Random(0)
    whole = _start(str(tiny), "--out", str(tmp_path / "whole"), "--set", "baselines={}", *SETTINGS)
    out, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, out

    killed = tmp_path / "killed"
    process = _start(str(tiny), "--out", str(killed), "--set", "baselines={}", *SETTINGS)
    kills = 0
    lost = []
    while kills < KILLS:
        before = _newest(killed)
        _wait_for_progress(process, killed, before)
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        out, _ = process.communicate()
        assert process.returncode == -9, f"it ended by itself: {out}"
        kills += 1
        done = _recorded(killed)
        lost.append(_newest(killed) - done)
        process = _start("--resume", str(killed))
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert max(lost) <= 5, "a checkpoint never runs ahead of the tables it belongs to by more than a chunk"
    assert_same_run(tmp_path / "whole", killed)
    assert not list(killed.rglob("*.partial")), "no half-written file is left"


def _newest(path):
    return max((int(p.stem) for p in (path / "per-fedavg" / "checkpoints").glob("*.safetensors")), default=-1)


def _recorded(path):
    history = hs.load_run(path).methods["per-fedavg"].history
    return 0 if history is None else history.num_rows


def _wait_for_progress(process, path, before):
    deadline = time.monotonic() + 120
    while _newest(path) <= before:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)
