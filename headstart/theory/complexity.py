"""The complexity tables of the papers as data: wang's Tables 1, 2 and 7 and gao's Remark 3.7.

>>> [row.method for row in rows(setting="cross-device")]
['Per-FedAvg', 'LocalMOML']
>>> row(method="LocalMOML", setting="cross-silo").samples
'n eps^-5'
>>> moml, maml = row(method="MOML v1"), row(method="MAML", setting="tasks")
>>> ratio(moml.samples, accuracy=0.5, clients=25) / ratio(maml.samples, accuracy=0.5, clients=25)
2.0
"""

import math
import re
from dataclasses import dataclass
from functools import partial

from rich import box
from rich.table import Table

from headstart.core.checks import any_whole, positive
from headstart.errors import UsageError, did_you_mean

__all__ = ["COMPLEXITIES", "SETTINGS", "Complexity", "complexity_table", "ratio", "row", "rows"]

SETTINGS = {
    "tasks": "one machine, n tasks",
    "endless-tasks": "one machine, endlessly many tasks",
    "cross-device": "clients, of which some take part in a round",
    "cross-silo": "clients that all take part in every round",
    "compositional": "clients with f(E g(x)), all taking part",
}


@dataclass(frozen=True, kw_only=True)
class Complexity:
    """What a method needs for ``E ||grad F|| <= eps``, up to constants; ``n`` is the number of tasks or clients.

    Entries are products such as ``n eps^-5`` and sums of them. An entry is None where the tables have none. *Stochastic
    Lipschitz* asks the gradient of every sample, not only their mean, to be Lipschitz.
    """

    method: str
    setting: str
    source: str
    """The paper the result is from, as wang or gao cite it."""
    table: str
    """Where it is listed."""
    samples: str
    """Samples of all iterations together."""
    rounds: str | None = None
    """Communications."""
    iterations: str | None = None
    outer_lr: str | None = None
    cohort: str | None = None
    """Tasks or clients an iteration (``B``)."""
    batch: str | None = None
    """Samples a task and iteration (``K``)."""
    samples_tasks: bool | None = None
    """Whether an iteration may visit some of the tasks or clients only."""
    bounded_gradients: bool | None = None
    stochastic_lipschitz: bool | None = None
    note: str = ""


_single = partial(Complexity, setting="tasks", table="wang Tables 1, 7")
_endless = partial(Complexity, setting="endless-tasks", table="wang Table 2")

COMPLEXITIES: tuple[Complexity, ...] = (
    _single(
        method="MAML",
        source="Fallah et al. 2020a",
        samples="n eps^-4",
        iterations="eps^-2",
        outer_lr="1",
        cohort="n",
        batch="eps^-2",
        samples_tasks=False,
        bounded_gradients=False,
        stochastic_lipschitz=False,
    ),
    _single(
        method="SCGD",
        source="Wang et al. 2017",
        samples="n eps^-8",
        iterations="eps^-8",
        outer_lr="eps^6",
        cohort="n",
        batch="1",
        samples_tasks=False,
        bounded_gradients=True,
        stochastic_lipschitz=False,
    ),
    _single(
        method="NASA",
        source="Ghadimi et al. 2020",
        samples="n eps^-4",
        iterations="eps^-4",
        outer_lr="eps^2",
        cohort="n",
        batch="1",
        samples_tasks=False,
        bounded_gradients=True,
        stochastic_lipschitz=False,
    ),
    _single(
        method="BSGD",
        source="Hu et al. 2020",
        samples="eps^-6",
        iterations="eps^-4",
        outer_lr="eps^2",
        cohort="1",
        batch="eps^-2",
        samples_tasks=True,
        bounded_gradients=True,
        stochastic_lipschitz=True,
        note="without bounded gradients where F is weakly convex",
    ),
    _single(
        method="BSpiderBoost",
        source="Hu et al. 2020",
        samples="n eps^-2 + n^1/2 eps^-4",
        iterations="eps^-2",
        outer_lr="1",
        cohort="n^1/2",
        batch="eps^-2",
        samples_tasks=True,
        bounded_gradients=True,
        stochastic_lipschitz=True,
    ),
    _single(
        method="MOML v1",
        source="wang",
        samples="n eps^-5",
        iterations="n eps^-5",
        outer_lr="eps^3",
        cohort="1",
        batch="1",
        samples_tasks=True,
        bounded_gradients=True,
        stochastic_lipschitz=False,
    ),
    _single(
        method="MOML v2",
        source="wang",
        samples="n eps^-5",
        iterations="n eps^-5",
        outer_lr="eps^3",
        cohort="1",
        batch="1",
        samples_tasks=True,
        bounded_gradients=False,
        stochastic_lipschitz=False,
    ),
    _endless(
        method="MAML",
        source="Fallah et al. 2020a",
        samples="eps^-6",
        cohort="eps^-2",
        batch="eps^-2",
        bounded_gradients=False,
        stochastic_lipschitz=False,
    ),
    _endless(
        method="BSpiderBoost",
        source="Hu et al. 2020",
        samples="eps^-5",
        cohort="eps^-2",
        batch="eps^-2",
        bounded_gradients=True,
        stochastic_lipschitz=True,
        note="tasks: eps^-2 or eps^-1",
    ),
    _endless(
        method="BSGD",
        source="Hu et al. 2020",
        samples="eps^-6",
        cohort="1",
        batch="eps^-2",
        bounded_gradients=True,
        stochastic_lipschitz=True,
    ),
    _endless(
        method="LocalMOML",
        source="wang",
        samples="eps^-6",
        cohort="1",
        batch="1",
        bounded_gradients=True,
        stochastic_lipschitz=False,
    ),
    Complexity(
        method="Per-FedAvg",
        setting="cross-silo",
        source="fallah",
        table="wang Table 1",
        samples="n eps^-6",
        rounds="eps^-3",
        batch="eps^-2",
        samples_tasks=False,
    ),
    Complexity(
        method="Per-FedAvg",
        setting="cross-device",
        source="wang",
        table="wang Table 1",
        samples="eps^-7",
        rounds="eps^-4",
        batch="eps^-2",
        samples_tasks=True,
        note="the original analysis has a gap here (wang, appendix E.3)",
    ),
    Complexity(
        method="LocalMOML",
        setting="cross-silo",
        source="wang",
        table="wang Table 1, Corollary 2",
        samples="n eps^-5",
        rounds="eps^-3",
        iterations="eps^-5",
        outer_lr="eps^3",
        batch="1",
        samples_tasks=False,
    ),
    Complexity(
        method="LocalMOML",
        setting="cross-device",
        source="wang",
        table="wang Table 1, Corollary 1",
        samples="eps^-6",
        rounds="eps^-4",
        iterations="eps^-6",
        outer_lr="eps^4",
        batch="1",
        samples_tasks=True,
    ),
    Complexity(
        method="Local-BSGD",
        setting="compositional",
        source="Huang et al. 2021",
        table="gao Remark 3.7",
        samples="eps^-8",
        rounds="eps^-4",
    ),
    Complexity(
        method="LocalMOML",
        setting="compositional",
        source="wang",
        table="gao Remark 3.7",
        samples="eps^-5",
        rounds="eps^-3",
        note="a memory for each task",
    ),
    Complexity(
        method="Local-SCGDM",
        setting="compositional",
        source="gao",
        table="gao Remark 3.7",
        samples="eps^-4",
        rounds="eps^-3",
        iterations="eps^-4",
        batch="1",
        note="for equal clients",
    ),
)
"""Every row of the tables, as printed."""


def rows(method: str | None = None, setting: str | None = None) -> list[Complexity]:
    """The rows of a method, of a setting, or of both; capital letters do not matter in a method's name."""
    methods = {row.method.lower() for row in COMPLEXITIES}
    wanted = None if method is None else method.lower()
    if wanted is not None and wanted not in methods:
        raise UsageError(f"No method {method!r} is in the tables.", did_you_mean(wanted, methods))
    if setting is not None and setting not in SETTINGS:
        raise UsageError(f"There is no setting {setting!r}.", did_you_mean(setting, SETTINGS))
    return [row for row in COMPLEXITIES if wanted in (None, row.method.lower()) and setting in (None, row.setting)]


def row(method: str, setting: str | None = None) -> Complexity:
    """The one row of a method, in a setting where it has several."""
    found = rows(method, setting)
    if len(found) != 1:
        settings = ", ".join(row.setting for row in rows(method))
        raise UsageError(
            f"{method!r} has {len(found)} rows" + ("." if setting is None else f" for setting {setting!r}."),
            f"It has rows for: {settings}.",
        )
    return found[0]


_FACTOR = re.compile(r"(n|eps)(?:\^(-?\d+)(?:/(\d+))?)?")


def ratio(entry: str, accuracy: float, clients: int | None = None) -> float:
    """What an entry comes to without its constant: only ratios of it mean something.

    >>> ratio("n eps^-2 + n^1/2 eps^-4", accuracy=0.5, clients=100)
    560.0
    """
    positive("accuracy", accuracy)
    if clients is not None:
        any_whole("clients", clients, 1)
    values = {"eps": accuracy, "n": clients}
    total = 0.0
    for term in entry.split(" + "):
        factors = []
        for word in term.split():
            match = _FACTOR.fullmatch(word)
            if word != "1" and match is None:
                raise UsageError(f"{word!r} in {entry!r} is no power of n or eps.", "Write n, eps^-4, n^1/2 or 1.")
            if match is None:
                continue
            base = values[match[1]]
            if base is None:
                raise UsageError(f"{entry!r} depends on n.", "Give the number of clients or tasks.")
            factors.append(base ** (int(match[2] or 1) / int(match[3] or 1)))
        total += math.prod(factors)
    return total


_SUPERSCRIPTS = str.maketrans("-0123456789/", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹ᐟ")


def _shown(entry: str | bool | None) -> str:
    if entry is None:
        return ""
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    entry = re.sub(r"\^(-?\d+(?:/\d+)?)", lambda match: match[1].translate(_SUPERSCRIPTS), entry)
    return f"O({entry.replace('eps', 'ε')})"


def complexity_table(method: str | None = None, setting: str | None = None) -> Table:
    """The rows as a table to print, setting by setting."""
    found = rows(method, setting)
    table = Table(
        title="to find E ‖∇F‖ ≤ ε, up to constants", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("method", no_wrap=True)
    headings = {
        "samples": "samples",
        "rounds": "rounds",
        "iterations": "iterations",
        "outer_lr": "outer_lr",
        "cohort": "cohort",
        "batch": "batch",
        "samples_tasks": "some tasks only",
        "bounded_gradients": "bounded gradients",
        "stochastic_lipschitz": "stochastic Lipschitz",
    }
    columns = [name for name in headings if any(getattr(row, name) is not None for row in found)]
    for name in columns:
        table.add_column(headings[name])
    table.add_column("from")
    for name in SETTINGS:
        here = [row for row in found if row.setting == name]
        if here:
            table.add_row(f"[bold]{SETTINGS[name]}[/bold]")
        for row in here:
            origin = f"{row.source} ({row.note})" if row.note else row.source
            table.add_row(row.method, *(_shown(getattr(row, column)) for column in columns), origin)
        if here:
            table.add_section()
    return table
