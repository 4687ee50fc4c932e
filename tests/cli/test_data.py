"""`headstart data`, and runs on data that is not the package's own."""

import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

import headstart as hs
from headstart.data.sources import SOURCES
from headstart.experiment import fitted

PEOPLE, EACH = 8, 12
QUICK = ("--set", "train.rounds=2", "--set", "train.backend=vmap", "--set", "model.hidden=[4]")


@pytest.fixture
def people(tmp_path):
    """A table of some people's activities."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(PEOPLE * EACH, 3))
    columns = {
        "person": np.repeat([f"p{i}" for i in range(PEOPLE)], EACH),
        "activity": np.array(["run", "sit"])[(x[:, 0] > 0).astype(int)],
        "hour": np.tile(np.arange(EACH), PEOPLE),
        **{f"sensor{j}": x[:, j] for j in range(3)},
    }
    path = tmp_path / "people.csv"
    csv.write_csv(pa.table(columns), path)
    return path


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSTART_OFFLINE", "1")
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADSTART_DATA", raising=False)


def test_a_table_of_ones_own_is_one_command(headstart, people, tmp_path):
    code, out, err = headstart(
        "run", "--data", people, "--client", "person", "--label", "activity", "--order", "hour", "--held-out", "2",
        "--no-tune", "--out", tmp_path / "run", *QUICK,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "alone" in out
    record = hs.load_run(tmp_path / "run")
    assert record.config["data"]["path"] == str(people.resolve())
    assert record.config["train"]["cohort"] == PEOPLE - 2
    assert record.config["algorithm"]["batch_size"] == 10, "as many as the smallest client has"
    assert set(record.methods) == {"per-fedavg", "fedavg", "alone"}
    assert record.methods["fedavg"].table["held_out"].to_numpy(zero_copy_only=False).sum() == 2 * 3, (
        "new clients are looked at once"
    )


def test_settings_suit_the_data():
    digits = hs.data.mnist_small()
    sizes = fitted({"algorithm": {"inner_lr": 0.5}}, digits)
    assert sizes["algorithm"] == {"inner_lr": 0.5, "outer_lr": 0.05, "batch_size": 20}, "what is given stays"
    assert "batch_size" not in sizes["evaluate"]
    assert fitted({}, hs.data.sine())["algorithm"] == {"inner_lr": 0.01, "outer_lr": 0.01}
    y = np.repeat(np.arange(4), 20)
    shapes = hs.data.Samples("shapes", np.zeros((80, 4, 4), np.uint8), y, tuple("abcd"))
    episodes = hs.Federation.from_episodes(shapes, [np.arange(80)] * 2, hs.data.Episodes(3, 2, 5))
    sizes = fitted({}, episodes)["algorithm"]
    assert (sizes["batch_size"], sizes["inner_batch_size"], sizes["curvature_batch_size"]) == (15, 6, 6)
    large = hs.Federation.from_arrays(np.zeros((500, 1)), [np.arange(400), np.arange(400, 450)], [[450]] * 2)
    assert fitted({}, large)["evaluate"] == {"batch_size": 50, "steps": [0, 1, 5]}


def test_a_table_can_be_prepared_and_then_stays_on_disk(headstart, people, tmp_path):
    code, out, _ = headstart(
        "data", "prepare", people, "--out", tmp_path / "big", "--client", "person", "--label", "activity"
    )
    assert code == 0
    assert "headstart run --data" in out
    code, _, err = headstart("run", "--data", tmp_path / "big", "--out", tmp_path / "run", "--no-tune", *QUICK)
    assert (code, err) == (0, "")


def test_data_is_shown_and_drawn(headstart, people, tmp_path):
    columns = ("--set", "client=person", "--set", "label=activity")
    code, out, _ = headstart("data", "show", people, *columns, "--picture", tmp_path / "show.png")
    assert code == 0
    for words in ("takes up to", "96", "4 of float32", "one of 2 classes", "run", "sit", "8 values: p0"):
        assert words in out, out
    code, out, _ = headstart("data", "partition", people, *columns, "--picture", tmp_path / "partition.png")
    assert code == 0
    assert "6 train, 2 held out" in out
    for picture in ("show.png", "partition.png"):
        assert (tmp_path / picture).stat().st_size > 5_000


def test_an_experiments_data_is_dealt_as_it_says(headstart, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('[data]\nname = "mnist-small"\nclients = 20\nheld_out = 5\n')
    assert "15 train, 5 held out" in headstart("data", "partition", path)[1]
    assert "17 train, 3 held out" in headstart("data", "partition", path, "--set", "held_out=3")[1]


def test_the_list_says_what_is_here(headstart, offline):
    code, out, _ = headstart("data", "list")
    assert code == 0
    for name in ("mnist-small", "fashion-mnist", "cifar100", "omniglot", "har", "shakespeare", "own", "not here"):
        assert name in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--client", "person"], "--client says something about data, but there is no --data"),
        (["run", "--data", "mnistsmall"], "no file, folder or data set mnistsmall. Did you mean 'mnist-small'"),
        (["run", "--data", "har", "--label", "y"], "label cannot be said of har"),
        (["run", "--data", "{people}", "--held-out", "some"], "--held-out some is not a number"),
        (
            ["run", "--data", "{people}", "--client", "person", "--label", "activity", "--kind", "regression"],
            "holds no numbers to predict",
        ),
        (
            ["run", "--data", "{people}", "--label", "activity"],
            r"which column is the client\? Say client = one of .*--client.: person",
        ),
        (["run", "--data", "{people}", "--client", "persn", "--label", "activity"], "persn.*person"),
        (["run", "--data", "cifar10"], "cifar10.*cifar-10-python.tar.gz"),
        (["run", "--resume", "there", "--data", "har"], "--data cannot change it"),
        (["data", "show", "sine"], "sine draw their samples from distributions"),
        (
            ["data", "partition", "mnist-small", "--set", "clints=3"],
            "data.clints is not a setting. Did you mean 'clients'",
        ),
        (["data", "prepare", "{people}", "--out", "x"], "Which column is to be predicted"),
    ],
)
def test_mistakes_are_one_message(headstart, people, offline, arguments, words):
    code, _, err = headstart(*(a.format(people=people) for a in arguments))
    assert code == 2
    assert "Traceback" not in err
    assert re.search(words, err), err


def test_a_named_data_set_is_fetched_into_the_folder_asked_for(headstart, offline, monkeypatch, tmp_path):
    """That folder is an argument, and nothing else changes where downloads go."""

    def download(remote, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / remote.name).write_bytes(b"")

    before = dict(os.environ)
    code, _, err = headstart("data", "prepare", "mnist", "--out", tmp_path / "mine")
    assert code == 2
    assert str(tmp_path / "mine" / "mnist") in err
    monkeypatch.delenv("HEADSTART_OFFLINE")
    monkeypatch.setattr("headstart.data.sources.fetch.fetch", download)
    folder = hs.data.prepare("mnist", tmp_path / "mine")
    assert folder == tmp_path / "mine" / "mnist"
    assert {path.name for path in folder.iterdir()} >= {remote.name for remote in SOURCES["mnist"].downloads}
    assert {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"} == {
        key: value for key, value in before.items() if key not in ("HEADSTART_OFFLINE", "PYTEST_CURRENT_TEST")
    }
