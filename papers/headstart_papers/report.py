"""Reports of reproduced experiments: a page each, a page over all, and the page of the documentation."""

import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from headstart_papers.figures import Drawn, draw
from headstart_papers.markdown import (
    bullet,
    details,
    made_by,
    missing,
    scores_table,
    table,
    tuning,
    verdict_lines,
)
from headstart_papers.numbers import clock
from headstart_papers.record import PaperExperiment, Profile
from headstart_papers.results import Results, load
from headstart_papers.settings import brief_settings, full_settings, size_note
from headstart_papers.verdicts import Outcome, Verdict, judge

__all__ = [
    "Assessment",
    "assess",
    "claims_table",
    "docs_page",
    "experiment_markdown",
    "experiments_table",
    "summary_markdown",
    "write_reports",
]

COLOURS: dict[Outcome, str] = {"reproduced": "green", "not reproduced": "red", "undecided": "yellow"}

MEANING = """\
A claim is an order of scores that the paper states or shows. It is *reproduced* if the 95% confidence interval
(Student's t over seeds, of differences between runs with the same seed) lies on the claim's side in all of its
comparisons, *not reproduced* if it lies on the other side in any, and *undecided* otherwise. "At least as good" may
fall short by the margin that the record states. Values are means over clients, then over seeds, with 95% intervals;
bold is the best of a setting. A run that diverges counts as the worst."""

MODES = {
    "paper": "run as the paper's text says",
    "paper, but first-order": "run as the paper's text says, but that gradients leave the Hessian out",
    "paper, signed pixels": "run as the paper's text says, with pixels in [-1, 1], of which it says nothing",
    "paper, tuned": "run as the paper's text says, with step sizes of a grid that it does not name",
    "as released": "run as the authors' released code does it, where that differs from the text",
    "as cited": "run with what the code has that the authors say theirs is adapted from",
    "trials": "no experiment of the paper, but a look for what explains one",
}

INTRODUCTION = """\
# Reproduction

What the papers report, beside what headstart finds when it runs the same experiments. The records of what is reported
and how it is run are in `papers/`. This page is written by

```sh
headstart reproduce --docs docs/reproduction.md
```

Any part of it can be had again by name, as in `headstart reproduce fallah/table1`, or smaller with `--quick`,
which takes under 20 minutes for all of it on 2 cores.
[Which symbol is which setting](notation.md)."""


class Assessment(NamedTuple):
    """An experiment, what was found, and what is to be said of its claims."""

    experiment: PaperExperiment
    results: Results
    verdicts: tuple[Verdict, ...]

    def count(self, outcome: Outcome) -> int:
        """How many claims have this verdict."""
        return sum(verdict.outcome == outcome for verdict in self.verdicts)


def assess(experiment: PaperExperiment, folder: Path, profile: Profile, seeds: int | None = None) -> Assessment:
    """Read what has been found below ``folder``, and judge the experiment's claims by it."""
    results = load(experiment, folder, profile, seeds)
    return Assessment(experiment, results, tuple(judge(claim, experiment, results) for claim in experiment.claims))


def experiment_markdown(assessment: Assessment, figures: Sequence[Drawn], relative_to: Path, level: int = 1) -> str:
    """The report of one experiment, for a page in the folder ``relative_to``; ``level`` is that of its heading."""
    experiment, results, verdicts = assessment
    parts = [
        f"{'#' * level} {experiment.id}: {experiment.title}",
        f"{experiment.place}; {MODES.get(experiment.mode, experiment.mode)} (mode: {experiment.mode}).",
        _loud(assessment),
        missing(results),
        _heading("Claims", level) if verdicts else None,
        "\n".join(line for verdict in verdicts for line in verdict_lines(verdict)),
        _heading("Scores", level) if results.cells else None,
        *(_scores(experiment, results) if results.cells else ()),
        *(_picture(drawn, relative_to) for drawn in figures),
        tuning(experiment, results),
        *_explanation(experiment, results, level),
        _heading("Setting" if results.profile == "full" else "Setting, at the paper's size", level),
        "\n".join(map(bullet, brief_settings(experiment))),
        details("All settings, as run", f"```toml\n{full_settings(experiment, results.profile)}\n```"),
        experiment.notes,
        made_by(results) if results.cells else None,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _explanation(experiment: PaperExperiment, results: Results, level: int) -> tuple[str, ...]:
    if not experiment.explanation:
        return ()
    runs = "" if results.profile == "full" else " of runs of the paper's size"
    return _heading(f"What explains the differences{runs}", level), experiment.explanation


def summary_markdown(assessments: Sequence[Assessment], links: bool = False) -> str:
    """Counts over all experiments, then every claim. With ``links``, to the experiments' sections of the same page."""
    rows = []
    for assessment in assessments:
        experiment, results, _ = assessment
        name = f"[{experiment.id}](#{_anchor(experiment)})" if links else experiment.id
        counts = [str(assessment.count(outcome)) for outcome in COLOURS]
        done, asked = results.progress
        rows.append([name, experiment.title, *counts, f"{done} of {asked}", clock(results.took)])
    totals = [str(sum(assessment.count(outcome) for assessment in assessments)) for outcome in COLOURS]
    rows.append(["**all**", "", *totals, "", clock(sum(assessment.results.took for assessment in assessments))])
    parts = [
        _all_smaller(assessments),
        table(["experiment", "", *COLOURS, "runs", "time"], rows, right=5),
        MEANING,
        _main_claims(assessments),
    ]
    claims = []
    for experiment, _, verdicts in assessments:
        if verdicts:
            claims.append(bullet(experiment.id))
        claims += [f"  - *{v.outcome}*: {v.claim.text} ({v.claim.place})" for v in verdicts]
    said = "All claims:\n\n" + "\n".join(claims) if claims else None
    return "\n\n".join(part for part in (*parts, said) if part) + "\n"


def _main_claims(assessments: Sequence[Assessment]) -> str | None:
    """The papers' main results and what became of them, in every mode that they were run in."""
    rows = [
        [verdict.claim.text, f"{experiment.id} ({experiment.mode})", f"*{verdict.outcome}*"]
        for experiment, _, verdicts in assessments
        for verdict in verdicts
        if verdict.claim.main
    ]
    return "The main claims:\n\n" + table(["claim", "experiment", "verdict"], rows) if rows else None


def write_reports(
    experiments: Iterable[PaperExperiment], out: Path, profile: Profile, seeds: int | None = None
) -> Path:
    """Write ``report.md`` with its pictures beside every experiment's results, and one over all into ``out``."""
    assessments = [assess(experiment, out, profile, seeds) for experiment in experiments]
    for assessment in assessments:
        folder = out / assessment.experiment.id
        folder.mkdir(parents=True, exist_ok=True)
        text = experiment_markdown(assessment, _draw(assessment, folder), folder)
        (folder / "report.md").write_text(text, encoding="utf-8")
    pages = "\n".join(bullet(f"[{a.experiment.id}]({a.experiment.id}/report.md)") for a in assessments)
    page = out / "report.md"
    text = f"# Reproduced experiments\n\n{summary_markdown(assessments)}\n## Reports\n\n{pages}\n"
    page.write_text(text, encoding="utf-8")
    return page


def docs_page(
    experiments: Iterable[PaperExperiment], out: Path, profile: Profile, page: Path, seeds: int | None = None
) -> None:
    """Write one page of all reports from the results in ``out``; its pictures go into ``images`` beside it.

    Experiments of which nothing has been run are only named.
    """
    judged = [assess(experiment, out, profile, seeds) for experiment in experiments]
    assessments = [assessment for assessment in judged if assessment.results.progress[0]]
    waiting = [f"`{a.experiment.id}`" for a in judged if not a.results.progress[0]]
    sections = [f"Recorded, but not run yet: {', '.join(waiting)}.\n"] if waiting else []
    for assessment in assessments:
        folder = page.parent / "images" / page.stem / assessment.experiment.id.replace("/", "-")
        sections.append(experiment_markdown(assessment, _draw(assessment, folder), page.parent, level=2))
    page.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([f"{INTRODUCTION}\n", summary_markdown(assessments, links=True), *sections])
    page.write_text(text, encoding="utf-8")


def experiments_table(experiments: Iterable[PaperExperiment]) -> Table:
    """Every experiment that can be run, for a terminal."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("experiment", no_wrap=True)
    for column in ("place", "mode", "what it shows"):
        table.add_column(column)
    for experiment in experiments:
        table.add_row(experiment.id, experiment.place, experiment.mode, experiment.title)
    return table


def claims_table(assessment: Assessment) -> Table:
    """An experiment's claims with their verdicts, for a terminal."""
    experiment, note = assessment.experiment, _smaller(assessment)
    done, asked = assessment.results.progress
    said = [experiment.id, experiment.place, *([note] if note else []), f"{done} of {asked} runs"]
    shown = Table(title=Text(", ".join(said)), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("claim, and what it rests on", overflow="fold")
    for verdict in assessment.verdicts:
        words = Text(f"{verdict.claim.text} ({verdict.claim.place})\n").append(verdict.statistic, "dim")
        shown.add_row(Text(verdict.outcome, COLOURS[verdict.outcome]), words)
    return shown


def _heading(text: str, level: int) -> str:
    return f"{'#' * (level + 1)} {text}"


def _smaller(assessment: Assessment) -> str | None:
    """How a run is smaller than the paper's, if it is."""
    experiment, results, _ = assessment
    if not results.cells:
        return None
    return size_note(experiment, results.profile, (len(cell.seeds) for cell in results.cells.values()))


def _loud(assessment: Assessment) -> str | None:
    note, profile = _smaller(assessment), assessment.results.profile
    kind = "" if profile == "full" else f" ({profile})"
    return None if note is None else f"> **Smaller run{kind}: {note}; not the paper's size.**"


def _all_smaller(assessments: Sequence[Assessment]) -> str | None:
    notes = {a.experiment.id: _smaller(a) for a in assessments}
    told = "; ".join(f"{name} ({note})" for name, note in notes.items() if note)
    return f"> **Smaller runs, not the papers' size: {told}.**" if told else None


def _scores(experiment: PaperExperiment, results: Results) -> Iterable[str]:
    """The scores that the paper reports, then the others."""
    reported = {score for row in experiment.rows.values() for score in row.reported}
    for group in (
        [score for score in experiment.scores.values() if score.id in reported],
        [score for score in experiment.scores.values() if score.id not in reported],
    ):
        if group:
            yield scores_table(experiment, results, group)


def _picture(drawn: Drawn, relative_to: Path) -> str:
    return f"![{drawn.figure.title}]({drawn.path.relative_to(relative_to).as_posix()})"


def _draw(assessment: Assessment, folder: Path) -> list[Drawn]:
    """The pictures; none, and no error, without Matplotlib: numbers and verdicts are what matters."""
    experiment, results, _ = assessment
    if not experiment.figures or importlib.util.find_spec("matplotlib") is None:
        return []
    return draw(experiment, results, folder)


def _anchor(experiment: PaperExperiment) -> str:
    """What GitHub and MkDocs make of the heading."""
    heading = f"{experiment.id}: {experiment.title}".lower()
    return "".join(c for c in heading if c.isalnum() or c in " -_").replace(" ", "-")
