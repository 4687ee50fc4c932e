"""From the records of runs to a report, in the form that is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Group

from headstart.errors import CannotWrite, UsageError
from headstart.experiment import RunRecord
from headstart.report.comparison import lost
from headstart.report.page.clients import adaptation_section, clients_section
from headstart.report.page.conduct import faults_section, privacy_section, settings_section
from headstart.report.page.document import Document
from headstart.report.page.facts import read_facts
from headstart.report.page.html import as_html
from headstart.report.page.likeness import likeness_section
from headstart.report.page.markdown import as_markdown, write_markdown
from headstart.report.page.reading import Evidence, read_evidence
from headstart.report.page.sentences import learned
from headstart.report.page.terminal import as_terminal
from headstart.report.page.training import cost_section, curves_section

__all__ = ["Format", "Report", "make_report"]

Format = Literal["html", "markdown", "terminal"]
SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "terminal"}


@dataclass(frozen=True)
class Report:
    """A document that can be shown and saved."""

    document: Document

    def html(self) -> str:
        """One page that needs nothing else: scripts, style and data are in it."""
        return as_html(self.document)

    def markdown(self) -> str:
        """As Markdown; figures are said in words."""
        return as_markdown(self.document)

    def terminal(self) -> Group:
        """As Rich prints it."""
        return as_terminal(self.document)

    def save(self, path: str | Path) -> Path:
        """Write it, in the form that the name's ending asks for.

        Figures of a Markdown file become SVG files in a folder beside it.
        """
        path = Path(path)
        form = SUFFIXES.get(path.suffix.lower())
        if form is None:
            raise UsageError(f"{path} does not say what form the report is to have.", "End it in .html, .md or .txt.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if form == "html":
                path.write_text(self.html(), encoding="utf-8")
            elif form == "markdown":
                write_markdown(self.document, path)
            else:
                path.write_text(_plain(self.terminal()), encoding="utf-8")
        except OSError as error:
            raise CannotWrite(
                f"{path} cannot be written: {error.strerror or error}.", "Choose another file."
            ) from error
        return path


def make_report(runs: str | Path | RunRecord | Sequence[str | Path | RunRecord], *, with_data: bool = True) -> Report:
    """What one or more runs have found, from their records: `hs.report.make_report("runs/mine").save("mine.html")`.

    Runs may still be going on. ``with_data`` reads the runs' data once more, to say how much each client has and how
    unlike it is to others; a record has no samples. The extra ``report`` installs what this needs.
    """
    if isinstance(runs, (str, Path, RunRecord)):
        runs = [runs]
    evidence = read_evidence(runs)
    facts = read_facts(evidence.runs, with_data)
    sections = [
        curves_section(evidence),
        clients_section(evidence, facts),
        adaptation_section(evidence),
        likeness_section(evidence, facts),
        cost_section(evidence),
        privacy_section(evidence),
        faults_section(evidence),
        settings_section(evidence),
    ]
    return Report(
        Document(
            title=_title(evidence),
            about=_about(evidence),
            sentences=learned(evidence),
            sections=[section for section in sections if section is not None],
            warnings=_warnings(evidence),
        )
    )


def _title(evidence: Evidence) -> str:
    names = sorted({_data(run) for run in evidence.runs})
    methods = dict.fromkeys(method.label for method in evidence.methods)
    return f"{', '.join(methods)} on {', '.join(names)}"


def _data(run: RunRecord) -> str:
    """What the data is called: its name, or that of the file or folder with one's own."""
    data = run.config["data"]
    return Path(data["path"]).name if data.get("path") else str(data["name"])


def _about(evidence: Evidence) -> str:
    method = evidence.methods[0]
    clients, trained = len(method.clients), int((method.roles == "trained").sum())
    rounds = sorted({m.trained_rounds for m in evidence.methods if m.trains})
    parts = [
        f"{clients:,} client{'s' if clients > 1 else ''} evaluated, {trained:,} of them trained",
        *([f"{', '.join(f'{number:,}' for number in rounds)} rounds"] if rounds else []),
        f"seed {', '.join(sorted({str(run.config['seed']) for run in evidence.runs}))}",
    ]
    where = [str(run.path) for run in evidence.runs if run.path is not None]
    return " · ".join([*parts, *where[:3], *(["…"] if len(where) > 3 else [])])


def _warnings(evidence: Evidence) -> list[str]:
    warnings = [
        f"{method.title} has not been trained to the end: {method.last:,} of {method.rounds:,} rounds are evaluated."
        for method in evidence.methods
        if not method.record.done
    ]
    for method in evidence.methods:
        if (reason := method.record.diverged) is not None:
            kept = "Its last scores" if lost(method.run, method.label) else "The best round's scores"
            warnings.append(
                f"{method.title} diverged: {reason[0].lower()}{reason[1:]} {kept}, of round {method.last:,}, are shown."
            )
    return warnings + [f"{title} has not been evaluated yet." for title in evidence.waiting]


def _plain(shown: Group) -> str:
    from rich.console import Console

    console = Console(width=100, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()
