"""Reports of reproduced experiments: a page each, a page over all, and the pages of the documentation."""

import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from headstart_papers.assessment import Assessment, assess
from headstart_papers.figures import Drawn, draw, planned
from headstart_papers.front import MEANING, experiments_list, front_page, headline
from headstart_papers.listing import listed
from headstart_papers.markdown import (
    bullet,
    details,
    deviations_table,
    made_by,
    missing,
    scores_table,
    tuning,
    verdict_lines,
)
from headstart_papers.quoting import Quoting
from headstart_papers.reading import find_experiments, papers_folder
from headstart_papers.record import PaperExperiment, Profile
from headstart_papers.results import Results, load
from headstart_papers.settings import brief_settings, full_settings
from headstart_papers.verdicts import Outcome

__all__ = [
    "check_docs",
    "claims_table",
    "docs_pages",
    "experiment_markdown",
    "experiments_table",
    "write_docs",
    "write_reports",
]

COLOURS: dict[Outcome, str] = {"reproduced": "green", "not reproduced": "red", "undecided": "yellow"}

MODES = {
    "paper": "run as the paper's text says",
    "reduced": "run as the paper's text says, but smaller for want of time",
    "paper, but first-order": "run as the paper's text says, but that gradients leave the Hessian out",
    "paper, S2 = S1": "run as the paper's text says, but that the Hessian is of the inner step's batch",
    "paper, signed pixels": "run as the paper's text says, with pixels in [-1, 1], of which it says nothing",
    "paper, tuned": "run as the paper's text says, with step sizes of a grid that it does not name",
    "as kept": "run as the paper's text says, with alpha read as the share of momentum that is kept",
    "as released": "run as the authors' released code does it, where that differs from the text",
    "as cited": "run with what the code has that the authors say theirs is adapted from",
    "trials": "no experiment of the paper, but a look for what explains one",
}

DISCOVERIES = "discoveries.md"


def experiment_markdown(
    assessment: Assessment, figures: Sequence[Drawn], relative_to: Path, quoting: Quoting | None = None
) -> str:
    """The report of one experiment, for a page in the folder ``relative_to``."""
    experiment, results, verdicts = assessment
    parts = [
        f"# {experiment.id}: {experiment.title}",
        f"{experiment.place}; {MODES.get(experiment.mode, experiment.mode)} (mode: {experiment.mode}).",
        _loud(assessment),
        missing(results),
        "## Claims" if verdicts else None,
        "\n".join(line for verdict in verdicts for line in verdict_lines(verdict)),
        "## Scores" if results.cells else None,
        _data_note(results),
        *(_scores(experiment, results) if results.cells else ()),
        *(_picture(drawn, relative_to) for drawn in figures),
        tuning(experiment, results),
        *_explanation(experiment, results),
        "## Deviations" if experiment.deviations else None,
        deviations_table(experiment),
        "## Setting" if results.profile == "full" else "## Setting, at the paper's size",
        "\n".join(map(bullet, brief_settings(experiment))),
        details("All settings, as run", f"```toml\n{full_settings(experiment, results.profile)}\n```"),
        experiment.notes,
        "## Again",
        f"```sh\nheadstart reproduce {experiment.id}\n```",
        made_by(results) if results.cells else None,
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return quoting.filled(text) if quoting else text


def _explanation(experiment: PaperExperiment, results: Results) -> tuple[str, ...]:
    if not experiment.explanation:
        return ()
    runs = "" if results.profile == "full" else " of runs of the paper's size"
    return f"## What explains the differences{runs}", experiment.explanation


def write_reports(
    experiments: Iterable[PaperExperiment], out: Path, profile: Profile, seeds: int | None = None
) -> Path:
    """Write ``report.md`` with its pictures beside every experiment's results, and one over all into ``out``."""
    assessments = [assess(experiment, out, profile, seeds) for experiment in experiments]
    quoting = _quoting(out, profile)
    for assessment in assessments:
        folder = out / assessment.experiment.id
        folder.mkdir(parents=True, exist_ok=True)
        text = experiment_markdown(assessment, _draw(assessment, folder), folder, quoting)
        (folder / "report.md").write_text(text, encoding="utf-8")
    pages = "\n".join(bullet(f"[{a.experiment.id}]({a.experiment.id}/report.md)") for a in assessments)
    page = out / "report.md"
    parts = [
        "# Reproduced experiments",
        _all_smaller(assessments),
        headline(listed(assessments)),
        MEANING,
        "All claims:",
        experiments_list(assessments),
        "## Reports",
        pages,
    ]
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return page


def docs_pages(
    experiments: Iterable[PaperExperiment], out: Path, profile: Profile, page: Path, drawing: bool
) -> Iterator[tuple[Path, str]]:
    """The page over all experiments and a page for each, from the results in ``out``, with their paths.

    Pages of experiments go into a folder of the page's name, pictures into ``images`` beside it, which are drawn only
    with ``drawing``. Experiments of which nothing has been run are only named.
    """
    quoting = _quoting(out, profile)
    judged = [assess(experiment, out, profile) for experiment in experiments]
    done = [assessment for assessment in judged if assessment.results.progress[0]]
    pictures = {}
    for assessment in done:
        name = assessment.experiment.id.replace("/", "-")
        folder = page.parent / "images" / page.stem / name
        pictures[assessment.experiment.id] = (_draw if drawing else _planned)(assessment, folder)
        own = page.parent / page.stem / f"{name}.md"
        back = f"[All experiments](../{page.name})\n"
        text = experiment_markdown(assessment, pictures[assessment.experiment.id], own.parent, quoting)
        yield own, f"{back}\n{text}"
    discoveries = papers_folder() / DISCOVERIES
    told = discoveries.read_text(encoding="utf-8") if discoveries.exists() else ""
    text = front_page(done, pictures, page, told, quoting)
    waiting = [f"`{a.experiment.id}`" for a in judged if not a.results.progress[0]]
    yield page, text + (f"\nRecorded, but not run yet: {', '.join(waiting)}.\n" if waiting else "")


def write_docs(experiments: Iterable[PaperExperiment], out: Path, profile: Profile, page: Path) -> None:
    """Write the pages of the documentation, and remove those of experiments that are no more."""
    kept = set()
    for path, text in docs_pages(experiments, out, profile, page, drawing=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        kept.add(path)
    for old in (page.parent / page.stem).glob("*.md"):
        if old not in kept:
            old.unlink()


def check_docs(experiments: Iterable[PaperExperiment], out: Path, page: Path) -> list[str]:
    """Compute the pages again and return how they differ from those that are there: nothing, if all is well."""
    differences = []
    for path, text in docs_pages(experiments, out, "full", page, drawing=False):
        if not path.exists():
            differences.append(f"{path} is missing")
            continue
        have, want = path.read_text(encoding="utf-8").splitlines(), text.splitlines()
        if len(have) != len(want):
            differences.append(f"{path} has {len(have)} lines, and {len(want)} when computed again")
        for number, (old, new) in enumerate(zip(have, want, strict=False), 1):
            if old != new:
                differences.append(f"{path}, line {number}: {_around(old, new)}")
                break
    return differences


def _around(old: str, new: str) -> str:
    """Where two lines part."""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, start - 20)
    return f"{old[start : start + 60]!r} is {new[start : start + 60]!r} when computed again"


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
    experiment, note = assessment.experiment, assessment.smaller
    done, asked = assessment.results.progress
    said = [experiment.id, experiment.place, *([note] if note else []), f"{done} of {asked} runs"]
    shown = Table(title=Text(", ".join(said)), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("claim, and what it rests on", overflow="fold")
    for verdict in assessment.verdicts:
        words = Text(f"{verdict.claim.text} ({verdict.claim.place})\n").append(verdict.statistic, "dim")
        shown.add_row(Text(verdict.label, COLOURS[verdict.outcome]), words)
    return shown


def _quoting(out: Path, profile: Profile) -> Quoting:
    """Looks numbers up in the results below ``out``."""

    @cache
    def results(name: str) -> Results:
        (experiment,) = find_experiments((name,))
        return load(experiment, out, profile)

    return Quoting(results, smaller=profile != "full")


def _loud(assessment: Assessment) -> str | None:
    note, profile = assessment.smaller, assessment.results.profile
    kind = "" if profile == "full" else f" ({profile})"
    return None if note is None else f"> **Smaller run{kind}: {note}; not the paper's size.**"


def _all_smaller(assessments: Sequence[Assessment]) -> str | None:
    notes = {a.experiment.id: a.smaller for a in assessments}
    told = "; ".join(f"{name} ({note})" for name, note in notes.items() if note)
    return f"> **Smaller runs, not the papers' size: {told}.**" if told else None


def _data_note(results: Results) -> str | None:
    """What is to be known of the data of the tables below."""
    parts = sorted({f"{data['name']} here is a subset: {data['subset']}" for data in results.data if "subset" in data})
    return "; ".join(parts) + "." if parts else None


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
    return f"![{drawn.figure.title}]({_relative(drawn.path, relative_to)})"


def _relative(path: Path, folder: Path) -> str:
    """The way from a folder to a file that is beside it or beside its parent."""
    return Path(os.path.relpath(path, folder)).as_posix()


def _planned(assessment: Assessment, folder: Path) -> list[Drawn]:
    """The pictures as they would be drawn."""
    return planned(assessment.experiment, assessment.results, folder)


def _draw(assessment: Assessment, folder: Path) -> list[Drawn]:
    """The pictures; none, and no error, without Matplotlib: numbers and verdicts are what matters."""
    experiment, results, _ = assessment
    if not experiment.figures or importlib.util.find_spec("matplotlib") is None:
        return []
    return draw(experiment, results, folder)
