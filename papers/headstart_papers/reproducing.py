"""The whole of it: run what has no result yet, judge the claims, write the reports."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from headstart.core import checks
from headstart.errors import UsageError
from headstart_papers.assessment import Assessment, assess
from headstart_papers.pool import Failure, Silent, Watcher, run_all
from headstart_papers.reading import find_experiments, papers_folder
from headstart_papers.record import PaperExperiment, Profile
from headstart_papers.report import check_docs, write_docs, write_reports
from headstart_papers.store import Store

__all__ = ["Reproduction", "check_pages", "reproduce"]


class Reproduction(NamedTuple):
    """What came out."""

    assessments: tuple[Assessment, ...]
    """Every experiment with its results and verdicts."""
    failures: tuple[Failure, ...]
    """What could not be run."""
    report: Path
    """The page over all experiments."""


def reproduce(
    *ids: str,
    quick: bool = False,
    seeds: int | None = None,
    data: str | Path | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    docs: str | Path | None = None,
    report_only: bool = False,
    watcher: Watcher | None = None,
) -> Reproduction:
    """Run the papers' tables and figures again, and judge their claims by what comes out.

    ``ids`` are experiments (``wang/table3``) or papers (``wang``); all unless given. ``quick`` runs smaller ones, said
    to be so. ``seeds`` is instead of each experiment's own number, ``data`` the folder with the data sets, ``jobs`` the
    number of processes (one per core). Results are kept in ``out`` (``reproduction/full`` or ``reproduction/quick``),
    and what is there already is not run again. ``docs`` names a Markdown file for the page over all experiments, beside
    which each gets a page of its own; with ``report_only`` nothing is run. ``watcher`` is told how the work goes on.
    """
    profile: Profile = "quick" if quick else "full"
    if seeds is not None:
        checks.whole("--seeds", seeds, 1)
    jobs = len(os.sched_getaffinity(0)) if jobs is None else jobs
    checks.whole("--jobs", jobs, 1)
    experiments = find_experiments(ids)
    folder = Path("reproduction") / profile if out is None else Path(out)
    failures: list[Failure] = []
    if not report_only:
        with _locked(folder):
            failures = _run(experiments, folder, profile, seeds, data, jobs, watcher or Silent())
    report = write_reports(experiments, folder, profile, seeds)
    if docs is not None:
        write_docs(experiments, folder, profile, Path(docs))
    assessments = tuple(assess(experiment, folder, profile, seeds) for experiment in experiments)
    return Reproduction(assessments, tuple(failures), report)


def check_pages(docs: str | Path | None = None, out: str | Path | None = None) -> list[str]:
    """Compute every number on the pages again from the results, and return how the pages differ.

    ``docs`` is the page over all experiments (``docs/reproduction.md`` of the repository), ``out`` the folder with the
    results (``papers/results`` there).
    """
    folder = papers_folder() / "results" if out is None else Path(out)
    page = papers_folder().parent / "docs" / "reproduction.md" if docs is None else Path(docs)
    for path, option in ((folder, "--out"), (page, "--docs")):
        if not path.exists():
            raise UsageError(f"There is no {path} to check.", f"Run it in the repository, or name it with {option}.")
    return check_docs(find_experiments(), folder, page)


def _run(
    experiments: list[PaperExperiment],
    folder: Path,
    profile: Profile,
    seeds: int | None,
    data: str | Path | None,
    jobs: int,
    watcher: Watcher,
) -> list[Failure]:
    units = [unit for experiment in experiments for unit in experiment.units(profile, seeds)]
    store = Store(folder)
    missing = [unit for unit in units if store.read(unit) is None]
    watcher.begins(len(units), len(missing), min(jobs, len(missing)))
    if not missing:
        return []
    environment = {} if data is None else {"HEADSTART_DATA": str(Path(data).resolve())}
    if profile == "quick":
        # Short runs spend most of their time compiling, which takes a third less for somewhat slower kernels.
        environment["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
    return run_all(missing, folder, jobs, watcher, environment)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise UsageError(
            f"Another process is at work in {folder}.", "Wait for it, or give another folder with --out."
        ) from error
