import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

import headstart as hs
from tests.cli.conftest import headstart  # noqa: F401


@pytest.fixture
def table(frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_a_new_client_adapts_and_predicts(headstart, model, path, frame, tmp_path):  # noqa: F811
    own = frame[frame["who"] == "p3"]
    own.to_csv(tmp_path / "mine.csv", index=False)
    mine = tmp_path / "mine.safetensors"
    code, out, _ = headstart("adapt", path, "--data", tmp_path / "mine.csv", "--out", mine, "--steps", 2, "--lr", 0.1)
    assert code == 0
    assert "rows held back" in out
    assert str(mine) in out.replace("\n", "")
    code, out, _ = headstart("predict", mine, "--data", tmp_path / "mine.csv", "--out", tmp_path / "done.parquet")
    assert code == 0
    done = pq.read_table(tmp_path / "done.parquet")
    assert done.column_names[-3:] == ["predicted_likes", "probability_no", "probability_yes"]
    assert done["predicted_likes"].to_pylist() == list(hs.load(mine).predict(own))
    assert done["who"].to_pylist() == list(own["who"])


def test_predictions_go_to_standard_output(model, path, table, capfd, frame):
    assert model.predict_file(table) == len(frame)
    rows = list(csv.DictReader(capfd.readouterr().out.splitlines()))
    assert [row["predicted_likes"] for row in rows] == list(model.predict(frame))


def test_files_are_predicted_a_block_at_a_time(model, table, frame, monkeypatch, tmp_path):
    monkeypatch.setattr("headstart.artifact.inputs.BLOCK_ROWS", 50)
    parts = list(model.predict_batches(table))
    assert [len(part) for part in parts] == [50, 50, 50, 42]
    together = np.concatenate([part["probability_yes"].to_numpy() for part in parts])
    np.testing.assert_allclose(together, model.predict_proba(frame)[:, 1], atol=1e-6)
    model.predict_file(table, tmp_path / "done.csv")
    assert len((tmp_path / "done.csv").read_text().splitlines()) == 1 + len(frame)


def test_a_bad_row_is_named_by_its_place(model, frame, tmp_path, monkeypatch):
    monkeypatch.setattr("headstart.artifact.inputs.BLOCK_ROWS", 50)
    bad = frame.copy()
    bad.loc[120, "size"] = np.inf
    with pytest.raises(hs.UsageError, match="row 121 of"):
        model.predict(bad)
    with pytest.raises(hs.UsageError, match="row 121 of"):
        model.predict_file(bad, tmp_path / "done.csv")
    assert not list(tmp_path.iterdir())


def test_the_card_is_shown_and_written(headstart, path, tmp_path):  # noqa: F811
    code, out, _ = headstart("inspect", path, "--out", tmp_path / "card.md")
    assert code == 0
    assert "# Shared model for `likes`" in out
    assert (tmp_path / "card.md").read_text() == hs.artifact.read_card(path)


def test_export_says_what_it_takes(headstart, path, tmp_path):  # noqa: F811
    code, _, _ = headstart("export", path, "--out", tmp_path / "model.stablehlo")
    assert code == 0
    assert (tmp_path / "model.stablehlo.json").exists()
    code, _, error = headstart("export", path, "--format", "pickle", "--out", tmp_path / "x")
    assert code == 2
    assert "no format 'pickle'" in error


def test_mistakes_are_one_message(headstart, path, tmp_path):  # noqa: F811
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    for command in ("inspect", "export"):
        more = ["--out", tmp_path / "x"]
        code, _, error = headstart(command, tmp_path / "junk.safetensors", *more)
        assert code == 2
        assert "junk.safetensors" in error


@pytest.mark.parametrize("command", ["inspect", "predict", "adapt", "export"])
def test_where_nothing_can_be_written_is_said(headstart, command, path, table, tmp_path):  # noqa: F811
    """A path below a file is refused by every system, and to whoever asks."""
    out = table / "below.csv"
    given = ["--data", table] if command in ("predict", "adapt") else []
    more = ["--steps", 1, "--lr", 0.1] if command == "adapt" else []
    code, _, said = headstart(command, path, *given, *more, "--out", out)
    assert code in (1, 2)
    assert "Traceback" not in said
    assert "below.csv" in said.replace("\n", "")
    assert "cannot be written" in " ".join(said.split())
