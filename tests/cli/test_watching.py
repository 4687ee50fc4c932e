"""`headstart run --watch`: a page beside the run, and the bar in the terminal."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from headstart.cli.interrupts import Stop
from headstart.cli.terminal import _Bar
from headstart.metrics import ACCURACY
from headstart.report import Watch
from headstart.report.page.ongoing import ongoing_document
from headstart.simulate import Evaluated, Progress


def test_the_page_is_there_while_the_run_is(headstart, tiny, tmp_path, monkeypatch):
    """The real process is tested beside the page; here it is enough that it is asked for, and ended."""
    seen: list[str] = []

    class Aside:
        def __init__(self, watch: Watch):
            self.watch = watch

        def __enter__(self) -> str:
            seen.append("begun")
            return self.watch.address

        def __exit__(self, *_: object) -> None:
            seen.append(ongoing_document(self.watch.runs).title)
            self.watch.close()

    monkeypatch.setattr(Watch, "aside", lambda self: Aside(self))
    code, out, _ = headstart("run", tiny, "--out", tmp_path / "run", "--set", "train.rounds=2", "--watch")
    assert code == 0
    assert seen == ["begun", "per-fedavg, fedavg on sine"]
    assert "Watching at http://127.0.0.1:" in out
    assert "headstart report" in out


def test_a_page_is_opened_only_if_there_is_one(headstart, tiny):
    code, _, error = headstart("run", tiny, "--open")
    assert code == 2
    assert "--open shows the page of --watch" in error


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ([(False, False), (True, True), (True, False)], "validation accuracy 80.0%"),
        ([(False, False), (True, False)], "new accuracy 80.0%"),
        ([(False, False)], "trained accuracy 70.0%"),
    ],
)
def test_the_bar_has_the_score_of_validation_clients(roles, said):
    held_out, validation = (np.array(flags) for flags in zip(*roles, strict=True))
    scores = np.array([0.7, 0.8, 0.9])[: len(roles)]
    table = pa.table(
        {"steps": np.ones(len(roles), int), "held_out": held_out, "validation": validation, "accuracy": scores}
    )
    bar = _Bar("method", Stop())
    bar.metric = ACCURACY
    assert bar._score(Evaluated(3, table, None)) == said


def test_who_trains_in_no_rounds_is_not_said_to(capsys):
    bar = _Bar("alone", Stop(), in_rounds=False)
    bar.on_start(SimpleNamespace(problem=SimpleNamespace(metrics=(ACCURACY,)), round=0), 300)
    bar.on_chunk(Progress(300, 300, 1.5976, 1.0, pa.table({}), None))
    assert capsys.readouterr().out == "alone: no rounds, every client trains by itself\n"
