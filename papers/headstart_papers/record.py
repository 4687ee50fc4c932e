"""What a paper reports and how it is run: an experiment, and the units of work that it is made of."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.metrics import METRICS

__all__ = [
    "SECTIONS",
    "Claim",
    "Comparison",
    "Deviation",
    "Figure",
    "Method",
    "Operand",
    "PaperExperiment",
    "Profile",
    "Row",
    "Score",
    "Unit",
    "merged",
]

Profile = Literal["full", "quick", "tiny"]
"""The paper's size; an honest smaller one; one of seconds that shows only that everything works."""

SECTIONS = ("data", "model", "common", "methods", "train", "evaluate", "final")
"""Tables of settings, which rows and profiles may change."""

METHOD_KEYS = ("title", "name", "grid", "train", "problem", "step_scaled_by")
"""What a method's table holds beside settings of the algorithm."""


@dataclass(frozen=True)
class Score:
    """One number per run: the mean over clients of a metric after some adaptation steps."""

    id: str
    title: str
    metric: str
    steps: tuple[int, ...] = (1,)
    """Averaged over, where there are several."""
    group: Literal["all", "trained", "held-out"] = "all"
    clients: tuple[int, int] | None = None
    """Only these clients of the group, from the first to before the second, in the final evaluation."""
    percent: bool = False
    measured: bool = False
    """Whether the number is of the shared model itself, such as a gradient's norm, and no client's."""
    extra: bool = False
    """Whether it is an extra of the unit, one number for all seeds together with their repetitions."""

    @property
    def higher_is_better(self) -> bool:
        """As the metric says; what is measured beside metrics, such as a gradient's norm, is to be low."""
        return self.metric in METRICS and METRICS[self.metric].higher_is_better

    @property
    def scale(self) -> float:
        """What a value is multiplied with to be shown."""
        return 100.0 if self.percent else 1.0


@dataclass(frozen=True)
class Method:
    """A column of the paper's table."""

    id: str
    title: str


@dataclass(frozen=True)
class Row:
    """A row of the paper's table: a setting in which all methods, or some, are compared."""

    id: str
    title: str
    methods: tuple[str, ...]
    seeds: int
    seeds_before: tuple[int, ...]
    """The numbers of seeds with which claims were judged before, and some of them were open."""
    reported: dict[str, dict[str, tuple[float, float | None]]]
    """The paper's value and the half-width that it prints, by score and method."""
    settings: dict[str, Any]


@dataclass(frozen=True)
class Operand:
    """A method in a row, its difference to another method there, or a number.

    ``None`` stands for the row that the claim is being judged in.
    """

    method: str
    row: str | None = None
    less: str | None = None
    """The method whose score is taken off."""
    number: float | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """All that it names."""
        return () if self.number is not None else (self.method, *([self.less] if self.less else []))

    def __str__(self) -> str:
        if self.number is not None:
            return f"{self.number:g}"
        name = f"({self.method} - {self.less})" if self.less else self.method
        return name if self.row is None else f"{self.row}/{name}"


@dataclass(frozen=True)
class Comparison:
    """``left > right`` or ``left >= right``, of values (not of what is better)."""

    left: Operand
    right: Operand
    strict: bool = True
    score: str | None = None
    """If not the claim's."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that can be checked."""

    text: str
    place: str
    score: str
    comparisons: tuple[Comparison, ...]
    rows: tuple[str, ...]
    curve: bool = False
    """Whether the whole curve is compared (its mean over the run: who is faster), not its end."""
    late: int = 0
    """Over how many of the last evaluations of the curve the mean is taken, if not its end alone."""
    margin: float = 0.0
    """How much lower than ``right`` the left side of a ``>=`` may be, in the units shown."""
    main: bool = False
    """Whether it is one of the paper's main results, which summaries show first."""
    within: Literal["seconds"] | None = None
    """Whether both sides are compared when the first of them has finished, at equal time, not at their ends."""
    substantial: bool = False
    """Whether the paper claims a size: half of the difference that it reports is then what ours has to exceed."""
    of: str = ""
    """The text under which the paper's claim is listed, if this is another reading of it."""
    mode: str = ""
    """If not the record's."""
    cause: str = ""
    """In one line, why it does not come out, naming the run that shows it."""

    @property
    def listed(self) -> str:
        """The text under which the paper's claim is listed."""
        return self.of or self.text


@dataclass(frozen=True)
class Deviation:
    """Something in which our runs are not the paper's, or in which the paper leaves a choice."""

    what: str
    paper: str
    ours: str
    why: str
    effect: str = "not tried"


@dataclass(frozen=True)
class Figure:
    """A picture to be drawn like the paper's."""

    kind: Literal["curves", "fits", "sweep"]
    title: str
    like: str = ""
    """The paper's figure."""
    score: str = ""
    x: Literal["round", "samples", "seconds"] = "round"
    rows: tuple[str, ...] = ()
    """A panel each; all unless given. In a ``sweep`` they are the curves of one panel."""
    methods: tuple[str, ...] = ()
    log: bool = False
    log_x: bool = False
    front: bool = False
    """Whether the page over all experiments shows it, as its paper's figure."""


@dataclass(frozen=True)
class Unit:
    """The smallest piece of work that is kept: a method in a row, with one seed or with all of them together."""

    experiment: str
    row: str
    method: str
    seeds: tuple[int, ...]
    settings: dict[str, Any] = field(hash=False)
    """All that decides the result, beside the data itself."""
    whole: dict[str, Any] = field(hash=False, default_factory=dict)
    """What its data's settings are where the data are the whole published ones, and not a subset."""

    @property
    def name(self) -> str:
        """What its file is called."""
        seed = f".seed{self.seeds[0]}" if len(self.seeds) == 1 else ""
        return f"{self.row}.{self.method}{seed}"

    @property
    def fingerprint(self) -> str:
        """Changes whenever a setting does."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PaperExperiment:
    """A table or figure of a paper: the record of what it reports, and how it is run."""

    id: str
    """The path of its file below the papers' folder, without ``.toml``."""
    title: str
    place: str
    """Where in the paper it stands."""
    seeds: int
    together: bool
    """Whether all seeds (and the grid) run as one program, on data that is the same for all of them."""
    mode: str
    """``paper`` for the text, ``as released`` where the authors' code differs and we follow the code."""
    rows: dict[str, Row]
    methods: dict[str, Method]
    scores: dict[str, Score]
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]
    deviations: tuple[Deviation, ...]
    tune: str | None
    """The score by which the best point of a grid is chosen."""
    extras: tuple[str, ...]
    measure: str | None
    notes: str
    """What a reader of the setting should know: choices where the paper is silent."""
    explanation: str
    """What explains a mismatch, found by trying."""
    tables: dict[str, Any]
    whole: dict[str, dict[str, Any]]
    """By the name of data of which a subset is what runs have here: settings for the whole of it."""
    profiles: dict[str, dict[str, Any]]

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.id.split("/")[0]

    def row_ids(self, profile: Profile) -> tuple[str, ...]:
        """The rows that a profile runs."""
        return tuple(self.profiles.get(profile, {}).get("rows", self.rows))

    def units(self, profile: Profile, seeds: int | None = None) -> Iterator[Unit]:
        """All that is to be run, seed by seed so that early results are of all methods."""
        wanted = {}
        for row in self.row_ids(profile):
            given = self.profiles.get(profile, {}).get("seeds", self.rows[row].seeds)
            wanted[row] = range(given if seeds is None else seeds)
        if self.together:
            for row, numbers in wanted.items():
                for method in self.rows[row].methods:
                    yield self._unit(profile, row, method, tuple(numbers))
            return
        for seed in range(max(len(numbers) for numbers in wanted.values())):
            for row, numbers in wanted.items():
                if seed in numbers:
                    for method in self.rows[row].methods:
                        yield self._unit(profile, row, method, (seed,))

    def _unit(self, profile: Profile, row: str, method: str, seeds: tuple[int, ...]) -> Unit:
        tables = merged(self.tables, self.rows[row].settings)
        tables = merged(tables, self.profiles.get(profile, {}).get("set", {}))
        own = tables["methods"][method]
        grid = {**tables["common"].get("grid", {}), **own.get("grid", {})}
        settings = {
            "data": tables["data"],
            "model": tables["model"],
            "common": {key: value for key, value in tables["common"].items() if key not in ("grid", "problem")},
            "algorithm": {key: value for key, value in own.items() if key == "name" or key not in METHOD_KEYS},
            "grid": grid,
            "train": {**tables["train"], **own.get("train", {})},
            "evaluate": tables["evaluate"],
            "final": tables["final"],
            "scores": {
                score.id: [score.metric, list(score.steps), score.group, score.clients, score.measured]
                for score in self.scores.values()
                if not score.extra
            },
            "seeds": list(seeds),
            "together": self.together,
            "extras": list(self.extras),
        }
        for key, value in (
            ("problem", own.get("problem", tables["common"].get("problem"))),
            ("step_scaled_by", own.get("step_scaled_by")),
            ("measure", self.measure),
        ):
            if value is not None:
                settings[key] = value
        smaller = "data" in self.profiles.get(profile, {}).get("set", {})
        whole = {} if smaller else self.whole.get(tables["data"].get("name"), {})
        return Unit(self.id, row, method, seeds, settings, whole)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with changes applied; another ``name`` drops the settings that were meant for the old one."""
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            renamed = "name" in value and value["name"] != old.get("name")
            result[key] = copy.deepcopy(dict(value)) if renamed else merged(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result
