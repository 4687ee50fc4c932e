"""What `headstart run` leaves behind."""

import json
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pyarrow.parquet as pq

import headstart as hs
from headstart.experiment import Settings


def test_a_run_is_one_record_readable_by_one_call(headstart, tiny, tmp_path):
    code, out, _ = headstart("run", tiny, "--out", tmp_path / "run")
    assert code == 0
    assert "per-fedavg" in out
    record = hs.load_run(tmp_path / "run")
    assert set(record.methods) == {"per-fedavg", "fedavg"}
    assert record.config["algorithm"]["inner_lr"] == 0.01, "defaults are resolved"
    assert record.config["baselines"]["fedavg"]["local_steps"] == 2, "baselines inherit"
    method = record.methods["per-fedavg"]
    assert method.done
    assert method.history["round"].to_pylist() == list(range(6))
    assert {"loss", "gradients", "products", "samples", "bytes_up", "bytes_down"} <= set(method.history.column_names)
    assert sorted(set(method.table["round"].to_pylist())) == [0, 3, 6]
    params = method.params(hs.Experiment.from_run(tmp_path / "run").problem.init(jax.random.key(0)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    manifest = json.loads((tmp_path / "run" / "per-fedavg" / "model.json").read_text())
    assert manifest["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert (tmp_path / "run" / "comparison.png").stat().st_size > 10_000
    assert not list((tmp_path / "run").rglob("*.pkl"))


def test_the_resolved_configuration_reads_back_to_itself(headstart, tiny, tmp_path):
    headstart("run", tiny, "--out", tmp_path / "run", "--set", "algorithm.curvature={name='hessian-free', radius=0.01}")
    config = hs.load_run(tmp_path / "run").config
    assert config["algorithm"]["curvature"] == {"name": "hessian-free", "radius": 0.01}
    assert Settings.from_tables(config).resolved == config


def test_settings_and_seed_override_the_file(headstart, tiny, tmp_path):
    code, _, _ = headstart(
        "run",
        tiny,
        "--out",
        tmp_path / "run",
        "--seed",
        7,
        "--set",
        "train.rounds=2",
        "--set",
        "algorithm.name=reptile",
    )
    record = hs.load_run(tmp_path / "run")
    assert code == 0
    assert (record.config["seed"], record.config["train"]["rounds"]) == (7, 2)
    assert list(record.methods) == ["reptile", "fedavg"]
    assert record.config["algorithm"]["batch_size"] == 40, "another algorithm starts from its own defaults"


def test_epsilon_is_printed_with_the_result(headstart, tiny, tmp_path):
    private = ("--set", "wire.clip=0.1", "--set", "wire.noise=2.0", "--set", "wire.delta=1e-4")
    code, out, _ = headstart("run", tiny, "--out", tmp_path / "run", *private)
    spent = hs.load_run(tmp_path / "run").privacy
    assert code == 0
    assert str(spent).startswith("central differential privacy: epsilon = ")
    assert str(spent) in " ".join(out.split())
    _, again, _ = headstart("run", "--resume", tmp_path / "run")
    assert str(spent) in " ".join(again.split())


def test_a_finished_run_resumes_to_its_comparison(headstart, tiny, tmp_path):
    headstart("run", tiny, "--out", tmp_path / "run")
    before = (tmp_path / "run" / "per-fedavg" / "model.safetensors").read_bytes()
    code, out, _ = headstart("run", "--resume", tmp_path / "run")
    assert code == 0
    assert "fedavg" in out
    assert (tmp_path / "run" / "per-fedavg" / "model.safetensors").read_bytes() == before


def test_ctrl_c_finishes_the_chunk_and_says_how_to_go_on(tiny, tmp_path):
    command = [sys.executable, "-c", "from headstart.cli import main; main()", "run"]
    settings = ["--set", "train.rounds=100000", "--set", "baselines={}"]
    process = subprocess.Popen(
        [*command, str(tiny), "--out", str(tmp_path / "run"), *settings],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    checkpoints = tmp_path / "run" / "per-fedavg" / "checkpoints"
    deadline = time.monotonic() + 120
    while len(list(checkpoints.glob("*.safetensors"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in out
    assert "Traceback" not in out
    record = hs.load_run(tmp_path / "run")
    done = record.methods["per-fedavg"].history.num_rows
    newest = max(int(path.stem) for path in checkpoints.glob("*.safetensors"))
    assert done == newest, "the chunk that was running is recorded and checkpointed"


def test_resuming_gives_the_same_bits_as_never_stopping(headstart, tiny, tmp_path, monkeypatch):
    headstart("run", tiny, "--out", tmp_path / "whole")
    # Ctrl-C pressed before the first chunk ends: each method stops after it.
    with monkeypatch.context() as patch:
        patch.setattr("headstart.cli.interrupts.Stop.requested", True)
        code, out, _ = headstart("run", tiny, "--out", tmp_path / "parts")
    assert code == 130
    assert "--resume" in out
    assert not hs.load_run(tmp_path / "parts").methods["per-fedavg"].done
    code, _, _ = headstart("run", "--resume", tmp_path / "parts")
    assert code == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def assert_same_run(one, other):
    """The same bits, but for how long things took."""
    for method in hs.load_run(one).methods:
        for name in ("model.safetensors",):
            assert (one / method / name).read_bytes() == (other / method / name).read_bytes()
        for name in ("rounds.parquet", "clients.parquet", "summary.parquet"):
            tables = [pq.read_table(run / method / name) for run in (one, other)]
            if name == "rounds.parquet":
                tables = [table.drop_columns("seconds") for table in tables]
            assert tables[0].equals(tables[1]), name
