"""Every claim of the papers once, with what became of it in each reading."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headstart_papers.assessment import Assessment
from headstart_papers.record import PaperExperiment
from headstart_papers.results import Results
from headstart_papers.verdicts import Verdict

__all__ = ["PRINTED", "PaperClaim", "Reading", "listed", "outcomes"]

PRINTED = ("paper", "reduced")
"""The modes that follow the text: at its size, or smaller for want of time."""


CORES = 2
"""Of the machine that times are told for."""


class Reading(NamedTuple):
    """A claim as one experiment judges it."""

    mode: str
    experiment: PaperExperiment
    results: Results
    verdict: Verdict

    @property
    def time_to_decide(self) -> float | None:
        """Seconds on 2 cores for the seeds that would decide it, each as long as the quickest took."""
        count, claim = self.verdict.seeds_to_decide, self.verdict.claim
        compared = {
            (operand.row or row, method)
            for row in claim.rows
            for comparison in claim.comparisons
            for operand in (comparison.left, comparison.right)
            for method in operand.methods
        }
        cells = [cell for key in compared if (cell := self.results.cell(*key))]
        seconds = sum(min(file["took"] / len(file["seeds"]) for file in cell.files) for cell in cells)
        return None if count is None else count * seconds / CORES


@dataclass
class PaperClaim:
    """A statement of a paper, with every reading in which it was tried."""

    paper: str
    text: str
    place: str
    readings: list[Reading] = field(default_factory=list)

    @property
    def printed(self) -> Reading:
        """As the text says it; the first reading where there is none."""
        return next((reading for reading in self.readings if reading.mode in PRINTED), self.readings[0])

    @property
    def others(self) -> list[Reading]:
        """The other readings."""
        return [reading for reading in self.readings if reading is not self.printed]

    @property
    def elsewhere(self) -> bool:
        """Whether another reading reproduces it and the text's does not."""
        return self.printed.verdict.outcome != "reproduced" and any(
            reading.verdict.outcome == "reproduced" for reading in self.others
        )


def listed(assessments: Iterable[Assessment]) -> list[PaperClaim]:
    """The papers' claims in the order of the records; one that several records judge is one claim."""
    claims: dict[tuple[str, str], PaperClaim] = {}
    for experiment, results, verdicts in assessments:
        family = experiment.id.split("-")[0] if experiment.paper != "fallah-v1" else experiment.id
        for verdict in verdicts:
            claim = verdict.claim
            kept = claims.setdefault((family, claim.listed), PaperClaim(experiment.paper, claim.listed, claim.place))
            kept.readings.append(Reading(claim.mode or experiment.mode, experiment, results, verdict))
    return list(claims.values())


def outcomes(claims: Sequence[PaperClaim]) -> dict[str, int]:
    """How many claims came out how, as the text says them."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for claim in claims:
        counts[claim.printed.verdict.label] += 1
    return counts


OUTCOMES = (
    "reproduced in size",
    "reproduced",
    "reproduced in direction",
    "undecided",
    "not reproduced in size",
    "not reproduced",
)
