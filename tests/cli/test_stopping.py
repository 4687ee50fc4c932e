"""A run that is interrupted, or has no room on the disk: what is said, and that nothing is lost."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

import headstart as hs
from tests.cli.test_run import assert_same_run

PYTHON = [sys.executable, "-c", "from headstart.cli import main; main()", "run"]


def test_a_second_ctrl_c_leaves_a_slow_chunk_at_once(tiny, tmp_path):
    """A chunk of many minutes: signals that wait for the compiled program to return would not be heard."""
    settings = ("train.rounds=4", "algorithm.local_steps=20000000", "baselines={}")
    process = subprocess.Popen(
        [*PYTHON, tiny, "--out", tmp_path / "run", *(part for setting in settings for part in ("--set", setting))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    checkpoint = tmp_path / "run" / "per-fedavg" / "checkpoints" / "000000000.safetensors"
    _wait_for(checkpoint.exists, process)
    time.sleep(3)  # it compiles, and computes
    process.send_signal(signal.SIGINT)
    assert "press Ctrl-C again" in process.stderr.readline() + process.stderr.readline()
    assert process.poll() is None, "it finishes its chunk"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert "last checkpoint is kept" in err
    assert f"headstart run --resume {tmp_path / 'run'}" in err
    assert "Traceback" not in err
    assert checkpoint.exists()
    assert hs.load_run(tmp_path / "run").methods["per-fedavg"].table.num_rows


def test_a_chunk_that_does_not_end_is_not_waited_for(tmp_path):
    """Nor is a program that is being compiled: one Ctrl-C ends a run within seconds."""
    lines = [
        "import pathlib, time",
        "from headstart.cli.interrupts import interruptible",
        f"with interruptible(pathlib.Path({str(tmp_path)!r}), patience=0.3):",
        "    print('begun', flush=True)",
        "    while True: time.sleep(60)",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Finishing this chunk, for at most 0.3 s" in err
    assert "Left at once; all up to the last checkpoint is kept." in err


@pytest.mark.parametrize("module", ["typer", "jax"])
def test_ctrl_c_while_modules_are_imported_leaves_without_a_traceback(tmp_path, module):
    """The command line's own modules come first, JAX when a command needs it."""
    begun = tmp_path / "begun"
    (tmp_path / f"{module}.py").write_text(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(60)\n")
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from headstart.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, "algorithms"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # not as in the background
    )  # fmt: skip
    _wait_for(begun.exists, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "\nStopped.\n")


def _wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


SMALL_DISK = """
set -e
mount -t tmpfs -o size=1m none disk
head -c 700k /dev/zero > disk/film
set +e
"$@" --out disk/run
echo "code $?"
cp -r disk/run stopped
rm disk/film
"$@" --resume disk/run
echo "code $?"
cp -r disk/run resumed
"""


def _may_mount():
    if shutil.which("unshare") is None:
        return False
    mount = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _may_mount(), reason="no disk can be mounted here")
def test_a_full_disk_loses_nothing_and_is_gone_on_from(tiny, tmp_path):
    settings = [part for setting in ("train.rounds=200", "baselines={}") for part in ("--set", setting)]
    script = tmp_path / "start.py"
    script.write_text(
        "import sys\n"
        f"if '--resume' not in sys.argv: sys.argv[1:1] = [{str(tiny)!r}, *{settings!r}]\n"
        "sys.argv.insert(1, 'run')\n"
        "from headstart.cli import main\n"
        "main()\n"
    )
    (tmp_path / "disk").mkdir()
    start = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", sys.executable, str(script)]
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "code 2\n" in done.stdout, done.stdout + done.stderr
    assert "code 0\n" in done.stdout, done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert "No space left on device" in said
    assert "Nothing was lost" in said
    assert "headstart run --resume disk/run" in said
    assert "Traceback" not in said
    assert 0 < hs.load_run(tmp_path / "stopped").methods["per-fedavg"].history.num_rows < 200
    # Compiled as the other processes do, not as the tests in this one.
    subprocess.run([sys.executable, script, "--out", tmp_path / "whole"], capture_output=True, check=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")
