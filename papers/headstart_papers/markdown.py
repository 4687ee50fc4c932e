"""The parts of an experiment's report in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headstart_papers.numbers import as_reported, clock, with_interval
from headstart_papers.record import PaperExperiment, Row, Score
from headstart_papers.results import Cell, Results
from headstart_papers.statistics import estimate
from headstart_papers.verdicts import SHOWN, Verdict

__all__ = [
    "bullet",
    "details",
    "deviations_table",
    "made_by",
    "missing",
    "scores_table",
    "seeds_told",
    "table",
    "tuning",
    "verdict_lines",
]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> str:
    """A table whose last ``right`` columns are numbers."""
    left = len(headings) - right
    lines = [headings, ["---"] * left + ["---:"] * right, *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def details(summary: str, text: str) -> str:
    """What only some want to read."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def bullet(text: str) -> str:
    """A line of a list."""
    return f"- {text}"


def scores_table(experiment: PaperExperiment, results: Results, scores: Sequence[Score]) -> str:
    """One line per row and method: ours beside the paper's, where it has them; the best of a row is bold."""
    lines = []
    reported = {score.id: any(score.id in row.reported for row in experiment.rows.values()) for score in scores}
    for row_id in experiment.row_ids(results.profile):
        row = experiment.rows[row_id]
        title = row.title
        best = {score.id: (_best_of_ours(row, results, score), _best_of_theirs(row, score)) for score in scores}
        for method in row.methods:
            cell = results.cell(row_id, method)
            line = [title, experiment.methods[method].title]
            for score in scores:
                ours, theirs = best[score.id]
                line.append(_bold(_ours(cell, score), method == ours))
                if reported[score.id]:
                    line.append(_bold(_theirs(row, method, score), method == theirs))
            lines.append([*line, _seeds(results, row_id, method)])
            title = ""
    headings = ["setting", "method"]
    for score in scores:
        headings += [f"{score.title}: ours", "paper"] if reported[score.id] else [score.title]
    return table([*headings, "seeds"], lines, right=len(headings) - 1)


def _ours(cell: Cell | None, score: Score) -> str:
    if cell is None:
        return "·"
    values = cell.final(score.id)
    lost = int(np.sum(~np.isfinite(values)))
    if lost == len(values):
        return "diverged"
    found = estimate(values[np.isfinite(values)])
    shown = with_interval(found.mean, found.half_width, score)
    return f"{shown} ({lost} of {len(values)} diverged)" if lost else shown


def _theirs(row: Row, method: str, score: Score) -> str:
    value = row.reported.get(score.id, {}).get(method)
    return "·" if value is None else as_reported(*value, score)


def _best_of_ours(row: Row, results: Results, score: Score) -> str | None:
    means = {
        method: float(cell.final(score.id).mean()) for method in row.methods if (cell := results.cell(row.id, method))
    }
    return _best({method: mean for method, mean in means.items() if np.isfinite(mean)}, score)


def _best_of_theirs(row: Row, score: Score) -> str | None:
    return _best({method: value[0] for method, value in row.reported.get(score.id, {}).items()}, score)


def _best(values: dict[str, float], score: Score) -> str | None:
    if len(values) < 2:
        return None
    return (max if score.higher_is_better else min)(values, key=lambda method: values[method])


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _seeds(results: Results, row: str, method: str) -> str:
    cell, wanted = results.cell(row, method), len(results.wanted[row, method])
    have = len(cell.seeds) if cell else 0
    return f"{have} of {wanted}" if (row, method) in results.missing else str(have)


def tuning(experiment: PaperExperiment, results: Results) -> str | None:
    """Which points of grids were chosen, and how good the others were."""
    chosen: dict[str, list[str]] = {}
    tried = []
    for (row, method), cell in results.cells.items():
        if len(cell.points) > 1:
            names = experiment.rows[row].title, experiment.methods[method].title
            chosen.setdefault(names[0], []).append(f"{names[1]} {_point(cell.point)}")
            tried += [[*names, _point(point), _mean(mean, cell.tuned_by)] for point, mean in cell.points_table]
    if not chosen:
        return None
    score = next(iter(results.cells.values())).tuned_by.title
    return "\n\n".join(
        [
            f"Chosen from grids by the best mean over seeds of: {score}.",
            "\n".join(bullet(f"{row}: {'; '.join(points)}") for row, points in chosen.items()),
            details("Every point of the grids", table(["setting", "method", "point", score], tried, right=1)),
        ]
    )


def _point(point: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in point.items())


def _mean(mean: float, score: Score) -> str:
    return with_interval(mean, None, score) if np.isfinite(mean) else "diverged"


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """A line of a list with the verdict and what it rests on, and all comparisons where they are many."""
    claim = verdict.claim
    whole = ", over the whole run" if claim.curve else f", the last {claim.late} evaluations" if claim.late else ""
    yield bullet(f"*{verdict.label}*: {claim.text} ({claim.place}{whole}): {verdict.statistic}.{_why(verdict)}")
    if len(verdict.compared) > SHOWN:
        lines = "\n".join(bullet(f"*{single.outcome}*: {single.words}") for single in verdict.singles)
        yield _indented(details(f"All {len(verdict.singles)} comparisons", lines))


def _why(verdict: Verdict) -> str:
    """How many seeds would decide an undecided claim, and the cause that is known."""
    said = []
    if verdict.outcome == "undecided" and verdict.compared:
        said.append(f"To decide it would take {seeds_told(verdict)}.")
    if verdict.claim.cause and verdict.outcome != "reproduced":
        said.append(verdict.claim.cause)
    return " " + " ".join(said) if said else ""


def seeds_told(verdict: Verdict) -> str:
    """``30 seeds``, if means and spreads stay as they are."""
    count = verdict.seeds_to_decide
    return "more than 10,000 seeds" if count is None else f"{count:,} seeds"


def deviations_table(experiment: PaperExperiment) -> str | None:
    """Where the runs are not the paper's, and what that does."""
    if not experiment.deviations:
        return None
    rows = [[d.what, d.paper, d.ours, d.why, d.effect] for d in experiment.deviations]
    return table(["", "paper", "ours", "why", "effect"], rows)


def missing(results: Results) -> str | None:
    """What has not been run yet, and what was not used."""
    said = []
    if results.missing:
        done, asked = results.progress
        told = "; ".join(
            f"{row}/{method}" + ("" if results.cell(row, method) is None else f" seeds {', '.join(map(str, seeds))}")
            for (row, method), seeds in results.missing.items()
        )
        said.append(f"**Not complete**: {done} of {asked} runs. Missing: {told}.")
    if results.stale:
        said.append(
            f"{len(results.stale)} result file{'s' if len(results.stale) > 1 else ''} of other settings "
            "(an older record, or another size of run) not used."
        )
    return " ".join(said) or None


def made_by(results: Results) -> str:
    """How long it took, and with which code."""
    said = [f"{clock(results.took)} of computing"]
    wall = results.wall_clock
    if wall:
        said.append(f"in {clock(wall)} by the clock ({results.took / wall:.1f} at a time)")
    text = " ".join(said) + "."
    if results.commits:
        text += f" Commit{'s' if len(results.commits) > 1 else ''} {', '.join(results.commits)}."
    if results.versions:
        text += " " + ", ".join(f"{name} {' and '.join(v)}" for name, v in results.versions.items()) + "."
    return text


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _indented(text: str) -> str:
    """As part of a list's item."""
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))
