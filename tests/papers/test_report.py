"""Reports say what was found, beside what the paper says, and never more than that."""

import importlib.util
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from headstart_papers import report
from headstart_papers.assessment import assess
from headstart_papers.front import front_page
from headstart_papers.listing import listed
from headstart_papers.quoting import Quoting
from headstart_papers.reading import read_record
from headstart_papers.report import check_docs, claims_table, experiment_markdown, write_docs, write_reports
from tests.papers.made_up import GRID, RECORD, claim, experiment, fill, write

DOCS = Path(__file__).parents[2] / "docs"

NOISE = (-0.01, 0.0, 0.01)
PICTURE = '[[figures]]\nkind = "curves"\ntitle = "Accuracy"\nscore = "accuracy"\n'


def values(row, method, seed):
    return (0.9 if method == "a" else 0.6) + NOISE[seed] * (1 if method == "a" else 2)


def text(tmp_path, profile="full", seeds=None, **parts):
    paper = experiment(tmp_path, **parts)
    return experiment_markdown(assess(paper, tmp_path, profile, seeds), [], tmp_path)


@pytest.fixture
def done(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b") + PICTURE)
    fill(paper, tmp_path, values, extras={"milliseconds": [1.0, 2.0]})
    return paper


def test_ours_stands_beside_the_papers(tmp_path, done):
    page = text(tmp_path, rest=claim("a > b"))
    assert "# someone/table7: A made-up table\n" in page
    assert "Table 7; run as the paper's text says (mode: paper)." in page
    # 4.303 is Student's t for two degrees of freedom; a's deviation is 1, b's 2.
    half = 4.302652729911275 / math.sqrt(3)
    assert f"| Easy setting | Method A | **90.00 ± {half:.2f}** | **80.00 ± 0.50** | 3 |" in page
    assert f"|  | Method B | 60.00 ± {2 * half:.2f} | 70.00 | 3 |" in page
    assert "| Hard setting | Method A | **90.00 ± 2.48** | · | 3 |" in page
    # Losses are one less accuracies here, and have no paper's value; of times and losses the lowest is the best.
    assert "| Easy setting | Method A | **0.100 ± 0.025** | **1.500 ± 0.575** | 3 |" in page
    statistic = "a - b: +30.00 ± 2.48 (p < 0.001, 3 seeds; the paper +10.00) in easy; "
    assert f"- *reproduced in size*: A beats B (Table 7): {statistic}" in page
    assert "The paper does not say how." in page
    assert "## What explains the differences\n\nIt is the scaling." in page
    assert "12 min of computing in 60 s by the clock (12.0 at a time). Commit abc1234. jax 0.10.2." in page
    assert "Smaller run" not in page
    assert "Missing" not in page


def test_settings_are_told_once_where_they_are_shared(tmp_path, done):
    page = text(tmp_path)
    assert "- train: rounds = 100\n" in page
    assert "- seeds: 3, each with data of its own\n" in page
    settings = page.split("```toml\n")[1].split("```")[0]
    shared, *own = re.split(r"\n\[(.*)\]\n", settings)
    assert 'model.name = "mlp"' in shared
    assert dict(zip(own[::2], own[1::2], strict=True))["hard.b"].split("\n")[:2] == [
        'algorithm.name = "fedavg"', "train.rounds = 200",
    ]  # fmt: skip


def test_seeds_that_were_added_are_told(tmp_path):
    record = experiment(tmp_path, top="seeds_before = [1, 2]")
    fill(record, tmp_path, values, extras={"milliseconds": [1.0, 2.0]})
    judged = assess(record, tmp_path, "full")
    assert "- seeds: 1, then 2, then 3, each with data of its own\n" in experiment_markdown(judged, [], tmp_path)
    front = front_page([judged], {}, tmp_path / "page.md", "", Quoting(lambda name: judged.results))
    assert "Every such look at the same claim" in front
    assert "So it was in `someone/table7` (1, then 2, then 3)." in front


def test_a_smaller_run_is_said_loudly(tmp_path, done):
    fill(done, tmp_path, values, "quick", extras={"milliseconds": [1.0, 2.0]})
    page = text(tmp_path, "quick")
    assert "> **Smaller run (quick): 10 of 100 rounds, 10 of 200 rounds, 2 of 3 seeds; not the paper's size.**" in page
    assert "4 result files of other settings" in page  # the third seeds of the full run, which quick did not write over
    write_reports([done], tmp_path, "quick")
    assert "> **Smaller runs, not the papers' size: someone/table7 (10 of 100" in (tmp_path / "report.md").read_text()


def test_a_run_of_some_rows_is_smaller_too(tmp_path, done):
    fill(done, tmp_path, values, "tiny", extras={"milliseconds": [1.0, 2.0]})
    assert "(tiny): 1 of 100 rounds, 2 of 3 seeds, 1 of 2 settings;" in text(tmp_path, "tiny")


def test_fewer_seeds_are_smaller_and_not_missing_if_asked_for(tmp_path, done):
    for path in tmp_path.rglob("*.seed2.json"):
        path.unlink()
    page = text(tmp_path, seeds=2)
    assert "> **Smaller run: 2 of 3 seeds; not the paper's size.**" in page
    assert "Missing" not in page


def test_what_is_missing_is_said(tmp_path, done):
    for name in ("hard.a.seed0", "hard.a.seed1", "hard.a.seed2", "hard.b.seed1"):
        (tmp_path / done.id / f"{name}.json").unlink()
    page = text(tmp_path, rest=claim("a > b"))
    assert "**Not complete**: 8 of 12 runs. Missing: hard/a; hard/b seeds 1." in page
    assert "| Hard setting | Method A | · | · | 0 of 3 |" in page
    assert "| 2 of 3 |" in page
    assert "*undecided*: A beats B" in page


def test_nothing_at_all_is_a_report_too(tmp_path):
    page = text(tmp_path, rest=claim("a > b") + PICTURE)
    assert "**Not complete**: 0 of 12 runs." in page
    assert "*undecided*: A beats B" in page


def test_divergence_is_said(tmp_path):
    paper = experiment(tmp_path)
    fill(
        paper,
        tmp_path,
        lambda row, method, seed: math.nan if method == "a" and (row == "easy" or seed) else 0.5,
        extras={"milliseconds": [1.0, 2.0]},
    )
    page = text(tmp_path)
    assert "| Easy setting | Method A | diverged | **80.00 ± 0.50** | 3 |" in page
    assert "| Hard setting | Method A | 50.00 (2 of 3 diverged) | · | 3 |" in page


def test_chosen_points_are_shown_with_all_others(tmp_path):
    parts = {"top": "tune = 'loss'\nmode = 'as released'\ntogether = true", "grid": GRID}
    paper = experiment(tmp_path, **parts)
    points = [{"outer_lr": lr} for lr in (0.1, 0.2, 0.3)]
    unit = next(paper.units("full"))
    final = {"accuracy": 0.5, "loss": [[3.0] * 3, [2.0] * 3, [math.nan] * 3]}
    write(tmp_path, unit, final, points=points, extras={"milliseconds": [1.0]})
    page = text(tmp_path, **parts)
    assert "released code" in page
    assert "Chosen from grids by the best mean over seeds of: Loss." in page
    assert "- Easy setting: Method A outer_lr = 0.2\n" in page
    assert "| Easy setting | Method A | outer_lr = 0.1 | 3.000 |" in page
    assert "| Easy setting | Method A | outer_lr = 0.3 | diverged |" in page


def test_many_comparisons_are_folded(tmp_path, done):
    order = '"a > b", "easy/a > b", "hard/a > b", "a >= b"'
    page = text(tmp_path, rest=claim("").replace('order = ""', f"order = [{order}]"))
    assert "6 of 6 comparisons hold; the weakest: " in page
    assert "\n  <details><summary>All 6 comparisons</summary>\n\n  - *reproduced*: a - b: " in page
    assert page.count("  - *reproduced*: ") == 6


def test_reports_are_written_with_their_pictures(tmp_path, done):
    path = write_reports([done], tmp_path, "full")
    assert path == tmp_path / "report.md"
    summary = path.read_text()
    assert "| someone | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 |" in summary
    assert "| **all** | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 |" in summary
    assert "- someone/table7: A made-up table\n  - *reproduced in size*: A beats B (Table 7)\n" in summary
    links(path)
    links(tmp_path / done.id / "report.md", pictures=1)


def test_the_pages_of_the_documentation(tmp_path, done):
    page = tmp_path / "docs" / "reproduction.md"
    write_docs([done], tmp_path, "full", page)
    own = tmp_path / "docs" / "reproduction" / "someone-table7.md"
    links(page)
    links(own, pictures=1)
    assert (tmp_path / "docs" / "images" / "reproduction" / "someone-table7" / "figure1.png").exists()
    assert "\n# someone/table7: A made-up table\n" in own.read_text()
    front = page.read_text()
    place = "[Table 7](reproduction/someone-table7.md)"
    row = f"| A beats B ({place}) | +10.00 | 2 of 2 hold; a - b in easy: +30.00 ± 2.48 | *reproduced in size* |  |  |"
    assert row in front
    assert "| [someone/table7](reproduction/someone-table7.md) | A made-up table | paper | 1 of 1 | 12 of 12 |" in front


def test_one_claim_in_several_modes_is_listed_once(tmp_path):
    folder = tmp_path / "someone"
    folder.mkdir()
    papers = []
    for name, mode, gap in (("table7", "paper", -0.3), ("table7-cited", "as cited", 0.3)):
        text = RECORD.format(top=f'mode = "{mode}"', grid="", rest=claim("a > b", "loss"))
        (folder / f"{name}.toml").write_text(text)
        papers.append(read_record(folder / f"{name}.toml", f"someone/{name}"))
        fill(papers[-1], tmp_path, lambda row, method, seed, gap=gap: 0.5 - gap * (method == "a") + NOISE[seed])
    (listed_once,) = listed([assess(paper, tmp_path, "full") for paper in papers])
    assert listed_once.printed.verdict.outcome == "reproduced" if gap < 0 else "not reproduced"
    assert [reading.mode for reading in listed_once.others] == ["as cited"]


def test_a_page_whose_numbers_are_not_those_of_the_results_is_found(tmp_path, done):
    page = tmp_path / "docs" / "reproduction.md"
    write_docs([done], tmp_path, "full", page)
    assert check_docs([done], tmp_path, page) == []
    own = tmp_path / "docs" / "reproduction" / "someone-table7.md"
    own.write_text(own.read_text().replace("90.00 ± 2.48", "91.00 ± 2.48", 1))
    (difference,) = check_docs([done], tmp_path, page)
    assert "someone-table7.md, line" in difference
    assert "91.00 ± 2.48" in difference
    assert "90.00 ± 2.48" in difference
    write_docs([done], tmp_path, "full", page)
    write(tmp_path, next(done.units("full")), {"accuracy": 0.7, "loss": 0.3}, extras={"milliseconds": [1.0, 2.0]})
    assert len(check_docs([done], tmp_path, page)) == 2


def links(page, pictures=0):
    """All that a page links to is there, and beside it."""
    targets = re.findall(r"(!?)\[[^\]]*\]\(([^)#]+)\)", page.read_text())
    for _, target in targets:
        # Pages that no record makes are those of the documentation.
        assert (page.parent / target).exists() or (DOCS / target).exists(), target
    assert sum(sign == "!" for sign, _ in targets) == pictures


def test_without_matplotlib_there_are_reports_without_pictures(tmp_path, done, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(report, "draw", None)
    write_reports([done], tmp_path, "full")
    links(tmp_path / done.id / "report.md", pictures=0)


def test_the_terminal_shows_claims_and_verdicts(tmp_path, done):
    (tmp_path / done.id / "hard.b.seed1.json").unlink()
    console = Console(width=100, record=True)
    console.print(claims_table(assess(done, tmp_path, "full")))
    shown = console.export_text()
    for words in ("someone/table7, Table 7, 11 of 12 runs", "reproduced", "A beats B (Table 7)", "a - b: +30.00"):
        assert words in shown, shown
