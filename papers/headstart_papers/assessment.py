"""An experiment with its results and the verdicts on its claims."""

from pathlib import Path
from typing import NamedTuple

from headstart_papers.record import PaperExperiment, Profile
from headstart_papers.results import Results, load
from headstart_papers.settings import size_note
from headstart_papers.verdicts import Outcome, Verdict, judge

__all__ = ["Assessment", "assess"]


class Assessment(NamedTuple):
    """An experiment, what was found, and what is to be said of its claims."""

    experiment: PaperExperiment
    results: Results
    verdicts: tuple[Verdict, ...]

    def count(self, outcome: Outcome) -> int:
        """How many claims have this verdict."""
        return sum(verdict.outcome == outcome for verdict in self.verdicts)

    @property
    def smaller(self) -> str | None:
        """How a run is smaller than the record's, if it is."""
        experiment, results, _ = self
        if not results.cells:
            return None
        return size_note(experiment, results.profile, (len(cell.seeds) for cell in results.cells.values()))


def assess(experiment: PaperExperiment, folder: Path, profile: Profile, seeds: int | None = None) -> Assessment:
    """Read what has been found below ``folder``, and judge the experiment's claims by it."""
    results = load(experiment, folder, profile, seeds)
    return Assessment(experiment, results, tuple(judge(claim, experiment, results) for claim in experiment.claims))
