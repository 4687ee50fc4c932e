"""One run on several hosts: real processes on this machine, killed and resumed, against one process."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import headstart as hs

EXPERIMENT = """
seed = 3
[data]
name = "mnist-small"
clients = 11
held_out = 4
validation = 2
[model]
name = "mlp"
hidden = [8]
[algorithm]
name = "per-fedavg"
local_steps = 2
batch_size = 10
inner_lr = 0.05
outer_lr = 0.05
curvature = "exact"
[baselines.moml]
name = "moml"
batch_size = 10
[train]
rounds = 6
cohort = 5
chunk = 2
[evaluate]
every = 3
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    path = tmp_path_factory.mktemp("hosts") / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def alone(experiment):
    """The same in one process."""
    path = experiment.parent / "alone"
    hs.Experiment.from_toml(experiment).run(path)
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(number, *arguments, devices=1):
    """The command on so many hosts of this machine."""
    hosts = ",".join([f"127.0.0.1:{free_port()}", *["127.0.0.1"] * (number - 1)])
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "XLA_FLAGS": ""}
    command = [sys.executable, "-m", "headstart", "run", *map(str, arguments), "--hosts", hosts, "--host"]
    return [
        subprocess.Popen([*command, str(i)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(number)
    ]


def ended(processes, seconds=300):
    """Exit codes, outputs and errors of all."""
    outputs = []
    try:
        outputs = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], outputs


def found(path):
    """The tables of a record, without how long anything took."""
    methods = hs.load_run(path).methods
    assert all(method.done for method in methods.values())
    return {
        (label, name): table[column].to_numpy(zero_copy_only=False)
        for label, method in methods.items()
        for name, table in (("rounds", method.history), ("clients", method.table))
        for column in table.column_names
        if column != "seconds"
        for name in [f"{name} {column}"]
    }


def agree(path, alone, rtol=2e-5):
    """A record holds what another one does, to rounding, or bit for bit."""
    ours, theirs = found(path), found(alone)
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        if values.dtype.kind == "f" and rtol:
            np.testing.assert_allclose(values, theirs[name], rtol=rtol, atol=1e-6, err_msg=str(name))
        else:
            assert values.tolist() == theirs[name].tolist(), name


def signal_after(processes, path, which, number, checkpoint="per-fedavg/checkpoints/000000002.safetensors"):
    """Signal one host once a checkpoint is there: exit codes, outputs, and how long the hosts took to end."""
    limit = time.monotonic() + 300
    while not (path / checkpoint).exists():
        if time.monotonic() > limit or any(process.poll() is not None for process in processes):
            pytest.fail(f"no checkpoint: {ended(processes, seconds=1)}")
        time.sleep(0.01)
    processes[which].send_signal(number)
    began = time.monotonic()
    codes, outputs = ended(processes)
    return codes, outputs, time.monotonic() - began


def test_a_killed_host_ends_the_other_clearly_and_one_machine_goes_on(experiment, alone, tmp_path):
    """Of two hosts the second is killed; the rest is done in this process, on two devices."""
    path = tmp_path / "run"
    codes, outputs, _ = signal_after(start(2, experiment, "--out", path), path, 1, signal.SIGKILL)
    assert codes == [1, -signal.SIGKILL]
    assert "2 hosts: " in outputs[0][0]
    said = outputs[0][1]
    assert "Error: Host 1 (" in said
    assert "has gone without a word" in said
    assert f"Go on, with as many hosts as there are, with: headstart run --resume {path}" in said
    hs.resume(path)
    agree(path, alone)


@pytest.mark.slow
def test_four_hosts_without_their_first_go_on_with_four_and_with_two(experiment, alone, tmp_path):
    path, whole = tmp_path / "run", tmp_path / "whole"
    codes, outputs = ended(start(4, experiment, "--out", whole))
    assert codes == [0] * 4, outputs
    assert all("rounds" not in out for out, _ in outputs[1:]), "only the first host speaks"
    agree(whole, alone)
    codes, outputs, seconds = signal_after(start(4, experiment, "--out", path), path, 0, signal.SIGKILL)
    assert codes[0] == -signal.SIGKILL
    assert all(code == 1 for code in codes[1:]), codes
    assert all("Host 0 (" in error for _, error in outputs[1:])
    assert seconds < 60
    two = tmp_path / "two"
    shutil.copytree(path, two)
    codes, outputs = ended(start(4, "--resume", path))
    assert codes == [0] * 4, outputs
    agree(path, whole, rtol=0)
    codes, outputs = ended(start(2, "--resume", two))
    assert codes == [0] * 2, outputs
    agree(two, whole)


@pytest.mark.slow
def test_ctrl_c_on_any_host_stops_all_of_them(experiment, alone, tmp_path):
    path = tmp_path / "run"
    codes, outputs, _ = signal_after(start(2, experiment, "--out", path), path, 1, signal.SIGINT)
    assert codes == [130, 130], outputs
    assert "all is kept" in outputs[0][0]
    codes, outputs = ended(start(2, "--resume", path, devices=2))
    assert codes == [0, 0], outputs
    agree(path, alone)


@pytest.mark.slow
def test_best_rounds_own_data_and_searches_on_hosts(tmp_path):
    """A table of one's own, whose settings the first host searches; the best round is kept."""
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(12), 30)
    x = rng.normal(size=(360, 2))
    label = np.where(x[:, 0] + 0.5 * people / 12 > 0, "yes", "no")
    lines = [f"p{p},{a:.4f},{b:.4f},{c}" for p, (a, b), c in zip(people, x, label, strict=True)]
    table = tmp_path / "people.csv"
    table.write_text("\n".join(["person,a,b,done", *lines]) + "\n")
    options = ["--data", table, "--client", "person", "--label", "done", "--held-out", "4", "--set", "train.rounds=8",
               "--set", "train.chunk=4", "--set", "data.validation=2", "--set", "train.keep=best"]  # fmt: skip
    for number in (1, 2):
        codes, outputs = ended(start(number, *options, "--out", tmp_path / str(number)))
        assert codes == [0] * number, outputs
    agree(tmp_path / "2", tmp_path / "1", rtol=2e-4)


def test_what_hosts_cannot_do_is_refused(experiment):
    from typer.testing import CliRunner

    from headstart.cli.main import app

    refused = CliRunner().invoke(app, ["run", str(experiment), "--host", "1"])
    assert isinstance(refused.exception, hs.UsageError)
    assert "--hosts A,B,C" in str(refused.exception)
