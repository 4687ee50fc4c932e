"""kill -9 and Ctrl-C of the whole reproduction: nothing goes on behind its back, and the numbers come out the same."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from headstart_papers.store import Store

DRIVER = """
import json, signal, sys
from pathlib import Path
from headstart_papers.pool import Silent, run_all
from headstart_papers.record import Unit

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores in what it runs in the background
units = [Unit(**{**table, "seeds": tuple(table["seeds"])}) for table in json.loads(sys.argv[1])]
failures = run_all(units, Path(sys.argv[2]), 2, Silent(), checkpoint_seconds=0.2)
assert not failures, failures
"""


def _start(units, folder):
    tables = json.dumps([asdict(unit) for unit in units])
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.Popen([sys.executable, "-c", DRIVER, tables, str(folder)], env=environment)


def _wait(condition, process):
    deadline = time.monotonic() + 180
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _workers(parent):
    listed = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with Path(f"/proc/{pid}/stat").open() as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def _wait_for_checkpoint(folder, process):
    def times():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}

    seen = times()
    _wait(lambda: any(time != seen.get(path) for path, time in times().items()), process)


def _end(process, how):
    """Send a signal; the process and its workers must end."""
    workers = _workers(process.pid)
    assert workers
    process.send_signal(how)
    process.wait(timeout=30)
    deadline = time.monotonic() + 30
    while any(_alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive who gave them orders"
        time.sleep(0.05)


def test_ctrl_c_ends_it_at_once(sine_unit, tmp_path):
    process = _start([sine_unit(rounds=1_000_000)], tmp_path)
    _wait_for_checkpoint(tmp_path, process)
    _end(process, signal.SIGINT)
    assert list(tmp_path.rglob("*.safetensors")), "what is done is kept"


def test_killed_and_started_again_gives_the_same_numbers(sine_unit, tmp_path):
    units = [sine_unit(rounds=rounds, method=f"m{rounds}") for rounds in (6000, 6001, 6002)]
    whole, killed = Store(tmp_path / "whole"), Store(tmp_path / "killed")
    assert _start(units, whole.folder).wait(timeout=300) == 0
    process = _start(units, killed.folder)
    _wait_for_checkpoint(killed.folder, process)
    _end(process, signal.SIGKILL)
    assert _start(units, killed.folder).wait(timeout=300) == 0
    for unit in units:
        expected, got = whole.read(unit), killed.read(unit)
        for key in ("final", "curves", "evaluated", "samples", "points"):
            assert got[key] == expected[key]
    assert not list(killed.folder.rglob("*.safetensors"))
