"""The comparison's numbers are the record's."""

import pyarrow as pa
from rich.console import Console

from headstart.report import comparison_table, method_title, plot_run
from headstart.simulate import RunRecord
from headstart.simulate.record import MethodRecord


def _record(tmp_path):
    rows = [
        {"round": r, "group": g, "steps": k, "metric": m, "mean": mean, "std": 0.05, "worst10": 0.3}
        for r, g, k, m, mean in [
            (0, "all", 0, "accuracy", 0.1), (0, "all", 1, "accuracy", 0.2),
            (5, "all", 0, "accuracy", 0.6), (5, "all", 1, "accuracy", 0.912),
            (9, "all", 0, "accuracy", 0.7), (9, "all", 1, "accuracy", 0.834),
            (9, "all", 0, "loss", 1.0), (9, "all", 1, "loss", 0.5),
        ]
    ]  # fmt: skip
    rows += [dict(row, group="held-out", mean=row["mean"] / 2) for row in rows]
    method = MethodRecord(tmp_path, True, pa.table({"seconds": [1.0, 2.5]}), None, pa.Table.from_pylist(rows))
    config = {"algorithm": {"name": "per-fedavg", "curvature": {"name": "hessian-free", "radius": 0.1}}}
    return RunRecord(tmp_path, config, {}, {"per-fedavg": method})


def test_the_table_shows_the_last_round_and_the_best(tmp_path):
    console = Console(width=120, record=True)
    console.print(comparison_table(_record(tmp_path)))
    text = console.export_text()
    for words in ("per-fedavg (hessian-free)", "70.0 ± 5.0", "83.4 ± 5.0", "41.7 ± 5.0", "30.0", " 5 ", "4 s", "new"):
        assert words in text, text


def test_titles_say_what_distinguishes_a_method():
    assert (
        method_title("meta-fl", {"name": "meta-fl", "inner_steps": 3, "curvature": "exact"})
        == "meta-fl (3 steps, exact)"
    )
    assert method_title("mine", {"name": "fedavg"}) == "mine"


def test_the_picture_is_drawn(tmp_path):
    plot_run(_record(tmp_path), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
