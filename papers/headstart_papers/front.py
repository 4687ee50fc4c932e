"""The page over all experiments: discoveries, every claim of the papers once, a figure per paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from headstart_papers.assessment import Assessment
from headstart_papers.figures import Drawn
from headstart_papers.listing import OUTCOMES, PaperClaim, listed, outcomes
from headstart_papers.markdown import bullet, seeds_told, table
from headstart_papers.numbers import clock
from headstart_papers.quoting import Quoting
from headstart_papers.settings import seeds_in_turn
from headstart_papers.verdicts import Verdict

__all__ = ["MEANING", "PAPERS", "claims_tables", "front_page", "headline"]

PAPERS = {
    "fallah": "Fallah, Mokhtari, Ozdaglar 2020: Per-FedAvg",
    "fallah-v1": "Its first preprint",
    "jamali": "Jamali, Saber, Bae 2025: generalized meta federated learning",
    "wang": "Wang, Yuan, Ying, Yang 2023: MOML and LocalMOML",
    "gao": "Gao, Li, Huang 2022: Local-SCGDM",
}

MEANING = """\
A claim is an order of scores that a paper states or shows; it may consist of several comparisons.

- *Reproduced*: in every comparison the 95% interval (Student's t over seeds, of differences between runs with the same
  seed) lies on the claim's side. All have to hold, so that no correction for their number is needed. *In size*: every
  difference is at least half of the one that the paper reports; *in direction*: some are smaller.
- *Not reproduced*: in some comparison it lies on the other side, after Holm's correction for their number. *In size*:
  the side is open, but it lies below half of the paper's difference. A claim that says "substantially" has to exceed
  that half.
- *Undecided* otherwise; the number of seeds that would decide it is given for means and spreads that stay as they are.
- A run has *diverged* if its score is not finite, or if a score that is to be low ends above 10 times what it was
  before training. Who diverges more often than by chance (Fisher's exact test, 5%) is worse, and who diverges with more
  than half of the seeds is not better than anyone. Otherwise the seeds that converged on both sides are compared, if
  they are at least half. Tables give means over seeds that converged, and how many did not."""

INTRODUCTION = """\
# Reproduction

What the five papers report, beside what headstart finds when it runs the same experiments. All numbers of ours here and
on the pages of the experiments are computed from the results in `papers/results`, but for those of trials that were not
kept, which are named as such; `headstart reproduce --check` computes them again and fails on a difference.
[Which symbol is which setting](notation.md). The pages are written by

```sh
headstart reproduce --report-only --out papers/results --docs docs/reproduction.md
```

and any part of it run again by name, as in `headstart reproduce fallah/table1`, or smaller with `--quick`, which takes
under 20 minutes for all of it on 2 cores."""

JUDGED_AGAIN = """\
Where claims were open, seeds were added: as many as they were then said to take, a number that was fixed before the new
ones ran and at which it was left, whatever they showed. Every such look at the same claim is another chance of 5% at
most to decide it wrongly."""

READING_ON = """\
Of several comparisons the one is shown that holds least, as the larger less the smaller in the paper's order; *paper*
is the difference that the paper reports there. The names of methods and settings are those of the experiment's page.
Beside the seeds that would decide a claim is how long so many runs of what it compares take on 2 cores."""

ORDER = ("fallah", "fallah-v1", "jamali", "wang", "gao")


def front_page(
    assessments: Sequence[Assessment],
    pictures: Mapping[str, Sequence[Drawn]],
    page: Path,
    discoveries: str,
    quoting: Quoting,
) -> str:
    """The page in ``page``, whose experiments have pages of their own in a folder of its name."""
    claims = listed(assessments)
    parts = [
        INTRODUCTION,
        quoting.filled(discoveries.strip()) if discoveries else None,
        "## How many claims come out",
        headline(claims),
        MEANING,
        _judged_again(assessments),
        "## Every claim",
        READING_ON,
        _subsets(assessments),
        *claims_tables(claims, quoting, page.stem, _figures(assessments, pictures, page)),
        "## Experiments",
        _experiments(assessments, page.stem),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _judged_again(assessments: Sequence[Assessment]) -> str | None:
    """Where seeds were added after claims had been open."""
    told = []
    for experiment, _, _ in assessments:
        counts = dict.fromkeys(seeds_in_turn(row) for row in experiment.rows.values() if row.seeds_before)
        told += [f"`{experiment.id}` ({count})" for count in counts]
    return f"{JUDGED_AGAIN} So it was in {', '.join(told)}." if told else None


def _subsets(assessments: Sequence[Assessment]) -> str | None:
    """Of which data the runs had a part only."""
    found: dict[str, list[str]] = {}
    for experiment, results, _ in assessments:
        for told in {f"{data['name']} ({data['subset']})" for data in results.data if "subset" in data}:
            found.setdefault(told, []).append(f"`{experiment.id}`")
    parts = [f"{told}, in {', '.join(ids)}" for told, ids in sorted(found.items())]
    return f"Runs had a subset only of {'; '.join(parts)}." if parts else None


def headline(claims: Sequence[PaperClaim]) -> str:
    """How many claims of each paper came out how, each claim once and as the text says it."""
    rows = []
    for paper in (*_papers(claims), None):
        mine = [claim for claim in claims if paper in (None, claim.paper)]
        counts = [str(count) for count in outcomes(mine).values()]
        elsewhere = str(sum(claim.elsewhere for claim in mine))
        rows.append([PAPERS.get(paper, paper) if paper else "**all**", *counts, str(len(mine)), elsewhere])
    heads = ["paper, as its text says", *OUTCOMES, "claims", "reproduced only in another reading"]
    return table(heads, rows, right=len(heads) - 1)


def claims_tables(claims: Sequence[PaperClaim], quoting: Quoting, folder: str, figures: Mapping[str, str]) -> list[str]:
    """A heading, a table of all claims and a figure per paper."""
    parts = []
    for paper in _papers(claims):
        parts.append(f"### {PAPERS.get(paper, paper)}")
        if paper in figures:
            parts.append(figures[paper])
        rows = [_row(claim, quoting, folder) for claim in claims if claim.paper == paper]
        parts.append(table(["claim", "paper", "ours", "verdict", "other readings", "cause"], rows))
    return parts


def _papers(claims: Sequence[PaperClaim]) -> list[str]:
    named = dict.fromkeys(claim.paper for claim in claims)
    return [*(paper for paper in ORDER if paper in named), *(paper for paper in named if paper not in ORDER)]


def _row(claim: PaperClaim, quoting: Quoting, folder: str) -> list[str]:
    mode, experiment, _, verdict = claim.printed
    label = f"*{verdict.label}*" + ("" if mode == "paper" else f" ({mode})")
    others = "; ".join(
        f"[{reading.mode}]({_page(folder, reading.experiment.id)}): {reading.verdict.label}" for reading in claim.others
    )
    cause = []
    if verdict.outcome == "undecided" and verdict.compared:
        seconds = claim.printed.time_to_decide
        cause.append(f"{seeds_told(verdict)}{'' if seconds is None else f', {clock(seconds)}'}.")
    if verdict.outcome != "reproduced" and verdict.claim.cause:
        cause.append(quoting.filled(verdict.claim.cause))
    place = f"[{claim.place}]({_page(folder, experiment.id)})"
    return [f"{claim.text} ({place})", _paper(verdict), _ours(verdict), label, others, " ".join(cause)]


def _paper(verdict: Verdict) -> str:
    weakest = verdict.weakest
    return "·" if weakest is None else weakest.shown(weakest.effect)


def _ours(verdict: Verdict) -> str:
    weakest = verdict.weakest
    if weakest is None:
        return "not run"
    many = f"{verdict.holding} of {len(verdict.singles)} hold; " if len(verdict.singles) > 1 else ""
    if weakest.difference is None:
        return f"{many}{weakest.words}"
    return f"{many}{weakest.name}: {weakest.shown(weakest.difference)}"


def _figures(assessments: Sequence[Assessment], pictures: Mapping[str, Sequence[Drawn]], page: Path) -> dict[str, str]:
    """The picture of each paper."""
    found: dict[str, str] = {}
    for assessment in assessments:
        for drawn in pictures.get(assessment.experiment.id, ()):
            if drawn.figure.front and assessment.experiment.paper not in found:
                path = drawn.path.relative_to(page.parent).as_posix()
                title = f"{assessment.experiment.id}: {drawn.figure.title}"
                found[assessment.experiment.paper] = f"![{title}]({path})"
    return found


def _experiments(assessments: Sequence[Assessment], folder: str) -> str:
    rows = []
    for experiment, results, verdicts in assessments:
        held = sum(verdict.outcome == "reproduced" for verdict in verdicts)
        done, asked = results.progress
        name = f"[{experiment.id}]({_page(folder, experiment.id)})"
        rows.append(
            [name, experiment.title, experiment.mode, f"{held} of {len(verdicts)}", f"{done} of {asked}",
             clock(results.took)]
        )  # fmt: skip
    total = clock(sum(assessment.results.took for assessment in assessments))
    rows.append(["**all**", "", "", "", "", total])
    return table(["experiment", "", "mode", "reproduced", "runs", "time"], rows, right=3)


def _page(folder: str, experiment: str) -> str:
    return f"{folder}/{experiment.replace('/', '-')}.md"


def experiments_list(assessments: Sequence[Assessment]) -> str:
    """Every experiment's claims with their verdicts."""
    lines = []
    for experiment, _, verdicts in assessments:
        if verdicts:
            lines.append(bullet(f"{experiment.id}: {experiment.title}"))
        lines += [f"  - *{v.label}*: {v.claim.text} ({v.claim.place})" for v in verdicts]
    return "\n".join(lines)
