"""A user's mistake is one clear message with the remedy, exit code 2, no traceback, and nothing overwritten."""

import errno
import os

import pytest

MISTAKES = {
    "unknown algorithm": (["algorithm.name=per-fedavgg"], ["algorithm.name", "'per-fedavg'"]),
    "unknown dataset": (["data.name=sin"], ["data.name", "'sine'"]),
    "unknown model": (["model.name=mpl"], ["model.name", "'mlp'"]),
    "unknown key": (["algorithm.iner_lr=0.1"], ["algorithm.iner_lr", "'inner_lr'"]),
    "unknown section": (["trian.rounds=3"], ["[trian]", "'train'"]),
    "unknown choice": (["train.backend=shraded"], ["train.backend", "'sharded'"]),
    "unknown curvature": (["algorithm.curvature=exakt"], ["algorithm.curvature", "'exact'"]),
    "unknown activation": (["model.activation=rellu"], ["rellu", "'relu'"]),
    "text for a number": (["algorithm.inner_lr=fast"], ["algorithm.inner_lr", "a number"]),
    "a fraction for a count": (["algorithm.local_steps=2.5"], ["algorithm.local_steps", "whole number"]),
    "a count for a switch": (["algorithm.shared_batch=1"], ["algorithm.shared_batch", "true or false"]),
    "a number for a section": (["train=3"], ["train", "[train]"]),
    "negative alpha": (["algorithm.inner_lr=-0.1"], ["inner_lr", "0 or more"]),
    "negative beta": (["algorithm.outer_lr=-0.1"], ["outer_lr", "0 or more"]),
    "r above 1": (["train.cohort=1.5"], ["cohort", "(0, 1]"]),
    "r of 0": (["train.cohort=0.0"], ["cohort", "(0, 1]"]),
    "more clients than there are": (["train.cohort=7"], ["cohort", "1 to 6"]),
    "no rounds": (["train.rounds=0"], ["rounds", "1 or more"]),
    "everyone held out": (["data.clients=0"], ["clients", "1"]),
    "batch of nothing": (["algorithm.batch_size=0"], ["batch_size", "1 or more"]),
    "an unknown word for a batch": (["algorithm.batch_size=whole"], ["algorithm.batch_size", "full"]),
    "full batches of generated samples": (["algorithm.batch_size=full"], ["sample", "numbers"]),
    "no equals sign": (["train.rounds"], ["train.rounds", "section.key=value"]),
    "a negative seed": (["seed=-1"], ["seed"]),
    "a negative radius": (["algorithm.curvature={name='hessian-free', radius=-1}"], ["radius", "above 0"]),
    "a schedule's key": (["algorithm.outer_lr={name='step-decay', initial=0.1}"], ["milestones", "missing"]),
    "no evaluation steps": (["evaluate.steps=[]"], ["evaluate.steps"]),
    "a batch larger than a client": (
        ["data.name=mnist-small", "algorithm.batch_size=36"],
        ["Client", "35 training samples", "35"],
    ),
    "a split larger than the data": (["data.name=mnist-small", "data.a=30"], ["a = 30", "class", "Lower a"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(headstart, tiny, tmp_path, mistake):
    settings, expected = MISTAKES[mistake]
    arguments = [part for setting in settings for part in ("--set", setting)]
    code, out, err = headstart("run", tiny, "--out", tmp_path / "run", *arguments)
    assert code == 2, out + err
    assert "Traceback" not in err
    for words in expected:
        assert words in err, err
    assert not (tmp_path / "run").exists(), "nothing is written for a configuration that cannot run"


def test_files_that_are_not_experiments(headstart, tmp_path):
    (tmp_path / "broken.toml").write_text("[train\nrounds = 3")
    for path, expected in {
        tmp_path / "nothing.toml": "no file",
        tmp_path: "is a folder",
        tmp_path / "broken.toml": "not valid TOML",
    }.items():
        code, _, err = headstart("run", path)
        assert code == 2
        assert expected in err


def test_a_folder_that_holds_something_is_never_overwritten(headstart, tiny, tmp_path):
    out = tmp_path / "run"
    assert headstart("run", tiny, "--out", out)[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, err = headstart("run", tiny, "--out", out)
    assert code == 2
    assert "already holds a run" in err
    assert "--resume" in err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    code, _, err = headstart("run", tiny, "--out", other)
    assert code == 2
    assert "not empty" in err
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


def test_an_out_directory_that_cannot_be_written(headstart, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = headstart("run", tiny, "--out", tmp_path / "file" / "run")
    assert code == 2
    assert "cannot be written" in err
    assert "--out" in err


def test_resuming_what_is_no_run(headstart, tiny, tmp_path):
    code, _, err = headstart("run", "--resume", tmp_path)
    assert code == 2
    assert "run.json" in err
    code, _, err = headstart("run", tiny, "--resume", tmp_path)
    assert code == 2
    assert "EXPERIMENT" in err


def test_a_run_in_use_is_refused(headstart, tiny, tmp_path):
    from headstart.experiment import RunDirectory

    headstart("run", tiny, "--out", tmp_path / "run")
    with RunDirectory.open(tmp_path / "run"):
        code, _, err = headstart("run", "--resume", tmp_path / "run")
    assert code == 2
    assert "another process" in err


def test_divergence_says_what_to_lower(headstart, tiny, tmp_path):
    code, _, err = headstart("run", tiny, "--out", tmp_path / "run", "--set", "algorithm.outer_lr=1e30")
    assert code == 1
    assert "not finite from round" in err
    assert "outer_lr" in err


def test_debug_shows_the_traceback(headstart, tiny):
    with pytest.raises(Exception, match="per-fedavgg"):
        headstart("run", tiny, "--debug", "--set", "algorithm.name=per-fedavgg")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(headstart, tiny, tmp_path):
    tmp_path.chmod(0o500)
    code, _, err = headstart("run", tiny, "--out", tmp_path / "run")
    tmp_path.chmod(0o700)
    assert code == 2
    assert "cannot be written" in err


@pytest.mark.parametrize("value", ["[]", "{}", "{a=1}", "3", "true"])
@pytest.mark.parametrize("key", ["algorithm.name", "baselines.fedavg.name", "data.name", "model.name"])
def test_a_name_that_is_no_word(headstart, tiny, key, value):
    code, _, err = headstart("run", tiny, "--set", f"{key}={value}")
    assert code == 2, err
    assert key in err
    assert "there is no such" in err


def test_a_setting_of_another_method_is_refused_with_those_that_have_it(headstart, tiny):
    code, _, err = headstart("run", tiny, "--set", "algorithm.keep_memory=true")
    assert code == 2
    assert "algorithm.keep_memory is not a setting" in err
    assert "per-fedavg takes none" in err
    assert "local-moml" in err


def test_a_picture_that_finds_no_room_is_one_message(headstart, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headstart.report.show_data", full)
    code, _, said = headstart("data", "show", "mnist-small")
    assert code == 1
    assert "No space left on device" in said
    assert "Traceback" not in said
