"""Bars, turns, the record, its table and its page."""

import json
from pathlib import Path

import pytest
from rich.console import Console

import headstart as hs
from headstart.bench.cases import LOOP, OURS, VMAP, Bar, Case, Settings, Side
from headstart.bench.measure import measured
from headstart.bench.turns import interleaved
from headstart.report import speed_page, speed_table


def test_bars() -> None:
    seconds = {OURS: 2.0, LOOP: 6.0}
    for bar, value, holds in [
        (Bar("speedup", 3, LOOP), 3.0, True),
        (Bar("speedup", 4, LOOP), 3.0, False),
        (Bar("ratio", 0.4, LOOP), 1 / 3, True),
        (Bar("ratio", 0.3, LOOP), 1 / 3, False),
        (Bar("seconds", 2), 2.0, True),
        (Bar("share", 0.7), 0.5, False),
        (Bar("bytes", 10), 20, False),
        (Bar("speedup", 4, VMAP), None, None),
    ]:
        found = bar.value(seconds, 0.5, 20)
        assert found == (None if value is None else pytest.approx(value))
        assert bar.holds(found) is holds


def test_sides_take_turns() -> None:
    order: list[str] = []
    sides = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = interleaved(sides, 3, patience=0.0, pause=0.0)
    assert order[:4] == ["a", "b", "a", "b"]
    assert set(times.seconds) == {"a", "b"}


def record() -> hs.bench.Bench:
    """Two cases, one whose bar holds, one whose bar does not."""

    def broken() -> Side:
        raise NotImplementedError("no rule for this")

    def missing() -> Side:
        raise ModuleNotFoundError("no torch", name="torch")

    bars = (Bar("ratio", 1e-9, "few"), Bar("speedup", 2, LOOP))
    others = {"few": lambda: Side(lambda: None), LOOP: missing}
    cases = [
        Case("good", "round", lambda: Side(lambda: None, 2, 8.0), {VMAP: broken}, (Bar("seconds", 60),)),
        Case("bad", "round", lambda: Side(lambda: sum(range(10_000))), others, bars),
    ]
    found = [measured(case, Settings(quick=True)) for case in cases]
    machine = {"when": "now", "cores": 2, "processor": "a chip", "jax": "1"}
    return hs.bench.Bench(machine, {"toy": {"title": "Toys", "cases": found}})


def test_a_record_says_what_was_measured(tmp_path: Path) -> None:
    found = record()
    good, bad = found.suites["toy"]["cases"]
    assert good["share"] == pytest.approx(8.0 / good["seconds"][OURS] / good["matrix_product"])
    assert good["notes"] == ["torch.func.vmap cannot: no rule for this"]
    assert bad["notes"] == ["no loop: torch is not installed"]
    assert [bar["holds"] for bar in bad["bars"]] == [False, None]
    assert good["peak_bytes"] > 10**7
    assert found.missed == ["toy: bad"]
    found.save(tmp_path / "bench.json")
    assert hs.bench.load_bench(tmp_path / "bench.json").suites == json.loads(json.dumps(found.suites))
    other = hs.bench.Bench({}, {"toy": {"title": "Other", "cases": []}})
    assert found.joined(other).suites == other.suites

    table = Console(width=80, record=True, force_terminal=False)
    table.print(speed_table("toy", found.suites["toy"]))
    assert max(map(len, table.export_text().splitlines())) <= 80

    page = speed_page("# Speed\n\nBefore.\n", found)
    assert speed_page(page + "\nAfter.\n", found) == page + "\nAfter.\n"
    assert "| bad, per round |" in page
    assert page.count("**missed:**") == 1
    good["disturbed"], bad["disturbed"] = 0.0, 0.5
    assert "meanwhile: bad (50%)." in speed_page(page, found)


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    for path in ("x.json", "none.json"):
        with pytest.raises(hs.UsageError, match=path):
            hs.bench.load_bench(tmp_path / path)
    with pytest.raises(hs.UsageError, match=r"(?s)mnits.*mnist"):
        hs.bench.bench(["mnits"])


def test_a_suite_runs_in_a_process_of_its_own() -> None:
    told: list[str] = []
    found = hs.bench.bench(["sweep"], quick=True, watch=lambda suite, case: told.append(case["case"]))
    (case,) = found.suites["sweep"]["cases"]
    assert told == [case["case"]] == ["8 settings"]
    assert case["flops"] > 0
    assert case["compile_seconds"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", hs.bench.SUITES)
def test_every_suite_runs(name: str) -> None:
    found = hs.bench.bench([name], quick=True)
    assert found.suites[name]["cases"]
