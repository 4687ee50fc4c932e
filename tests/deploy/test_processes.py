"""Processes are started, started again, and never left behind."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from headstart.deploy.events import Events
from headstart.deploy.processes import Child, Keeper, alive, end, tail

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
print('started', flush=True)
time.sleep(600)
"""
WATCHER = """
import os, sys, time
from pathlib import Path
from headstart.deploy.processes import Child, Keeper
with Keeper([Child('sleeper', {sleeper!r}, Path({log!r}), os.environ)]) as keeper:
    while True:
        keeper.tend()
        print(keeper['sleeper'].process.pid, flush=True)
        time.sleep(0.2)
"""


def _until(condition, seconds=20):
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def _gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_is_killed_is_started_again_after_a_pause_and_the_log_says_so(tmp_path):
    events = Events()
    child = Child("sleeper", SLEEPER, tmp_path / "log", os.environ, pause=lambda child: 0.3)
    with Keeper([child], events) as keeper:
        keeper.tend()
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait()
        keeper.tend()
        assert not child.running
        _until(lambda: keeper.tend() or child.running)
        assert child.starts == 2
        pid = child.process.pid
    assert _gone(pid)
    assert events.told[0]["reason"] == "killed by SIGKILL"


def test_pauses_grow_and_one_that_never_runs_is_hopeless(tmp_path):
    child = Child(
        "failing", [sys.executable, "-c", "print('why not'); raise SystemExit(3)"], tmp_path / "log", os.environ
    )
    child.pause = lambda child: 0.0
    with Keeper([child], events := Events()) as keeper:
        _until(lambda: keeper.tend() or keeper.hopeless() is child)
    assert "why not" in tail(child.log)
    child.pause, events.told = (lambda child: None), []
    for failures in range(3):
        child.failures = failures
        child.process = subprocess.Popen(["false"])
        child.process.wait()
        child.tend(events)
    assert [event["seconds"] for event in events.told] == [1.0, 2.0, 4.0]


def test_all_that_a_process_has_started_ends_with_it(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "started\n"
    (grandchild,) = psutil.Process(process.pid).children()
    end([process.pid])
    assert _gone(process.pid)
    assert _gone(grandchild.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of others does not")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_watcher_is_killed(tmp_path, number):
    script = WATCHER.format(sleeper=SLEEPER, log=str(tmp_path / "log"))
    watcher = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(watcher.stdout.readline())
    _until(lambda: "time.sleep(600)" in " ".join(psutil.Process(pid).cmdline()[1:3]))
    watcher.send_signal(number)
    watcher.wait()
    _until(lambda: _gone(pid))


def test_a_process_that_was_killed_is_dead_before_it_is_reaped():
    process = subprocess.Popen(SLEEPER)
    assert alive(process.pid)
    process.kill()
    _until(lambda: not alive(process.pid))
    assert process.wait() == -signal.SIGKILL
    assert not alive(process.pid)
