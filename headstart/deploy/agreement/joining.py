"""What the server makes of the sites' answers: one table's columns, clients, labels and statistics of many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.data.partitions import SmallClients
from headstart.data.tables.encoding import MISSING_CATEGORY, CategoryColumn, NumberColumn
from headstart.data.tables.fitting import Statistics
from headstart.data.tables.identifiers import MAX_CATEGORIES, RowNumbers, misplaced_texts, why_no_feature, without
from headstart.data.tables.labels import FEW_CLASSES, MAX_CLASSES, LabelSummary, Target
from headstart.data.tables.moments import Moments
from headstart.data.tables.roles import Roles, roles_of
from headstart.data.tables.spans import LARGEST, LEAST_LEVEL, Extent
from headstart.data.tables.splitting import check_spelling, worded
from headstart.deploy.agreement.said import Answer
from headstart.deploy.agreement.terms import Terms
from headstart.errors import UsageError

__all__ = [
    "WHERE",
    "Answers",
    "Table",
    "joined_clients",
    "joined_columns",
    "joined_moments",
    "joined_statistics",
    "joined_table",
    "joined_target",
    "same",
]

Answers = Mapping[str, Answer]

WHERE = "The sites' data"

MOST_COLUMNS = 100_000
MOST_CLIENTS = 10_000_000
MOST_CLASSES = 100_000

TYPES = {
    "numbers": pa.float64(),
    "texts": pa.string(),
    "times": pa.timestamp("us"),
    "nothing": pa.null(),
    "something else": pa.binary(),
}


@dataclass(frozen=True)
class Table:
    """The columns that are in use."""

    roles: Roles
    numeric: tuple[str, ...]
    notes: tuple[str, ...]


def joined_table(answers: Answers, terms: Terms) -> Table:
    """The columns of all sites' tables, which must be the same, without those that hold ids."""
    label = same([(site, answer.text("label")) for site, answer in answers.items()], "label")
    kinds: dict[str, str] = {}
    first: dict[str, str] = {}
    told: dict[str, dict[str, str]] = {}
    for site, answer in answers.items():
        told[site] = _columns(answer)
        for name, kind in told[site].items():
            if kinds.get(name, "nothing") == "nothing":
                kinds[name], first[name] = kind, site
            elif kind not in ("nothing", kinds[name]) and name not in (terms.client, label):
                raise UsageError(
                    f"Column {name!r} holds {kind} at site {site!r}, but {kinds[name]} at site {first[name]!r}.",
                    "Give the column one type at all sites; look for texts among numbers.",
                )
    for name, owner in first.items():
        lacking = next((site for site in answers if name not in told[site]), None)
        if lacking is not None:
            raise UsageError(
                f"Site {owner!r} has a column {name!r}, site {lacking!r} has not, or does not describe it.",
                "Name the columns to predict from with features = [...], or describe the same columns at all sites.",
            )
    schema = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()])
    roles, unusable = roles_of(
        schema,
        WHERE,
        client=terms.client,
        label=label,
        features=terms.choices.features,
        group=terms.natural.group,
        order=terms.natural.order,
    )
    reasons = {}
    if terms.choices.features is None:
        reasons = _identifiers(answers, [name for name in roles.features if kinds[name] == "texts"])
        reasons |= _row_numbers(answers, [name for name in roles.features if kinds[name] == "numbers"])
    roles, notes = without(roles, reasons, WHERE)
    return Table(roles, tuple(name for name in roles.features if kinds[name] == "numbers"), (*unusable, *notes))


def _columns(answer: Answer) -> dict[str, str]:
    """What a site's columns hold."""
    told = answer.content.said.get("columns")
    if not isinstance(told, list) or len(told) > MOST_COLUMNS:
        raise answer.refused("no list of columns")
    columns = {}
    for pair in told:
        good = isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
        if not good or pair[1] not in TYPES:
            raise answer.refused(f"{pair!r:.50} as a column")
        columns[pair[0]] = pair[1]
    return columns


def same(told: Sequence[tuple[str, Any]], what: str) -> Any:
    """What all sites say alike."""
    (first, value), *others = told
    for site, other in others:
        if other != value:
            raise UsageError(
                f"Site {site!r} has the {what} {other!r}, but site {first!r} has {value!r}.",
                f"Bring all sites' data to one {what}.",
            )
    return value


def _identifiers(answers: Answers, texts: Sequence[str]) -> dict[str, str]:
    """Columns of texts that are no features, and why."""
    rows = sum(answer.whole("rows") for answer in answers.values())
    clients = sum(answer.whole("clients") for answer in answers.values())
    reasons = {}
    for name in texts:
        # A column that a site has no values of is not among its texts.
        told = [part.part(name) for answer in answers.values() if (part := answer.part("texts")).has(name)]
        marks: set[str] | None = set()
        for one in told:
            if not one.has("marks") or marks is None:
                marks = None
            else:
                marks.update(one.texts("marks", MAX_CATEGORIES))
        distinct = None if marks is None or len(marks) > MAX_CATEGORIES else len(marks)
        why = why_no_feature(distinct, sum(one.whole("pairs") for one in told), rows, clients)
        if why is not None:
            reasons[name] = why
    return reasons


def _row_numbers(answers: Answers, numbers: Sequence[str]) -> dict[str, str]:
    """Columns of numbers that count the rows of all sites, and are no features."""
    rows = sum(answer.whole("rows") for answer in answers.values())
    parts = [answer.part("counting") for answer in answers.values()]
    reasons = {}
    for name in numbers:
        if not all(part.has(name) for part in parts):
            continue
        told = [part.wholes(name, 3, -(2**80), 2**80) for part in parts]
        counted = reduce(RowNumbers.joined, [RowNumbers(low, high, total) for low, high, total in told])
        if (why := counted.why_no_feature(rows)) is not None:
            reasons[name] = why
    return reasons


def joined_columns(answers: Answers, table: Table) -> tuple[NumberColumn | CategoryColumn, ...]:
    """How the columns of all sites are stored."""
    columns: list[NumberColumn | CategoryColumn] = []
    for name in table.roles.features:
        if name in table.numeric:
            extents = [_extent(answer.part("extents"), name) for answer in answers.values()]
            joined = _joined_extents(extents)
            columns.append(NumberColumn(name, offset=0.0 if joined is None else joined.offset))
        else:
            found = {text for answer in answers.values()
                     for text in answer.part("categories").texts(name, MAX_CATEGORIES)}  # fmt: skip
            _check_categories(name, found)
            columns.append(CategoryColumn(name, tuple(sorted(found))))
    return tuple(columns)


def _check_categories(name: str, found: set[str]) -> None:
    if len(found) > MAX_CATEGORIES:
        raise UsageError(
            f"{WHERE}: column {name!r} has more than {MAX_CATEGORIES} different texts.",
            "Each would be a feature. Leave the column out with features = [...], or merge rare values.",
        )
    wrong = misplaced_texts(found - {MISSING_CATEGORY})
    if wrong:
        raise UsageError(
            f"{WHERE}, column {name!r}: {min(wrong)!r} among numbers.",
            "Write a number or nothing there; for a category, write all values as words.",
        )


def _extent(answer: Answer, name: str) -> Extent | None:
    """Where a site's values lie; ``None`` where they are far from each other."""
    if answer.content.said.get(name) == "wide":
        return None
    level, low, high = answer.wholes(name, 3, -(2**1200), 2**1200)
    if not LEAST_LEVEL <= level <= 100 or not low - 1 <= high <= low + 1 or abs(low) > 2**54:
        raise answer.refused(f"no extent of column {name!r}")
    return Extent(level, low, high)


def _joined_extents(extents: Sequence[Extent | None]) -> Extent | None:
    there = [extent for extent in extents if extent is not None]
    return None if len(there) < len(extents) else reduce(Extent.joined, there)


def joined_target(answers: Answers, terms: Terms, label: str) -> Target:
    """What the labels of all sites are to be taken for."""
    told = {site: answer.part("labels") for site, answer in answers.items()}
    if any(answer.has("listed") for answer in told.values()):
        classes = same(
            [(site, answer.texts("listed", MOST_CLASSES)) for site, answer in told.items()], "list of classes"
        )
        return Target(tuple(classes), f"The label is one of {len(classes)} classes.")
    few = MAX_CLASSES if terms.kind == "classification" else FEW_CLASSES
    joined: LabelSummary | None = None
    for answer in told.values():
        if answer.has("texts"):
            summary = LabelSummary(frozenset(answer.texts("texts", MOST_CLASSES)))
        else:
            whole = None
            if answer.has("whole"):
                length = len(answer.content.said["whole"]) if isinstance(answer.content.said["whole"], list) else -1
                if not 0 <= length <= few:
                    raise answer.refused(f"no list of at most {few} labels")
                whole = tuple(sorted(set(answer.wholes("whole", length, -(2**96), 2**96))))
            summary = LabelSummary(None, whole, _extent(answer, "extent"))
        try:
            joined = summary if joined is None else joined.joined(summary)
        except UsageError as error:
            raise UsageError(f"{WHERE}, label {label!r}: {error.problem}", error.remedy) from None
    assert joined is not None
    return joined.target(terms.kind, WHERE, label)


def joined_clients(answers: Answers, terms: Terms) -> tuple[list[str], dict[str, str], list[str]]:
    """The names of all clients that can be split, in order; the site of each; and a word about those that cannot."""
    names: list[str] = []
    site_of: dict[str, str] = {}
    kinds = set()
    sizes: dict[str, list[np.ndarray]] = {"rows": [], "groups": [], "tests": []}
    for site, answer in answers.items():
        told = answer.part("clients")
        own = told.texts("names", MOST_CLIENTS)
        kinds.add(told.text("kind"))
        for name in own:
            if site_of.setdefault(name, site) != site:
                raise UsageError(  # nobody knows whose it is
                    f"Site {site!r} answered with a client {name!r}, whom site {site_of[name]!r} has as well.",
                    "Give clients different names, or revoke the site that has no such client.",
                )
        names += own
        sizes["rows"].append(answer.counts("rows", (len(own),)))
        if terms.natural.group is not None:
            sizes["groups"].append(answer.counts("groups", (len(own),)))
        if terms.natural.test_share == "own":
            sizes["tests"].append(answer.counts("tests", (len(own),)))
    order = _order(names, kinds)
    ordered = pa.array([names[i] for i in order], pa.string())
    check_spelling(ordered, WHERE)
    rows, groups, tests = (np.concatenate(parts)[order] if parts else None for parts in sizes.values())
    assert rows is not None
    try:
        kept, notes = terms.natural.large_enough(ordered, WHERE, rows, groups, tests)
    except SmallClients as error:
        raise (worded(error) if terms.label is not None else error) from None
    return ordered.filter(pa.array(kept)).to_pylist(), site_of, notes


def _order(names: Sequence[str], kinds: set[str]) -> np.ndarray:
    """Numbers by size where all clients are called by numbers, otherwise texts."""
    try:
        if kinds == {"whole"}:
            return np.array(sorted(range(len(names)), key=lambda i: int(names[i])), np.int64)
        if kinds <= {"whole", "number"}:
            return np.array(sorted(range(len(names)), key=lambda i: float(names[i])), np.int64)
    except ValueError as error:
        raise UsageError(
            f"{WHERE}: a client's name is no number: {error}.", "Name clients alike at all sites."
        ) from None
    return np.array(sorted(range(len(names)), key=lambda i: names[i]), np.int64)


def joined_moments(answers: Answers, columns: int, prefix: str = "", largest: float = 2 * LARGEST) -> Moments:
    """Of the training rows of all sites, whose values are no larger than that."""
    parts = []
    for answer in answers.values():
        counts = answer.counts(f"{prefix}counts", (columns,)).astype(np.float64)
        means = answer.numbers(f"{prefix}means", (columns,))
        squares = answer.numbers(f"{prefix}squares", (columns,), least=0)
        if (counts > 2**53).any() or (np.abs(means) > largest).any() or (squares > counts * (2 * largest) ** 2).any():
            raise answer.refused(f"{prefix}means or squares that no rows have")
        parts.append(Moments(counts, means, squares))
    return reduce(Moments.joined, parts)


def joined_statistics(answers: Answers, columns: Sequence[NumberColumn | CategoryColumn]) -> Statistics:
    """What the training rows of all sites say of their columns."""
    rows = sum(answer.whole("rows") for answer in answers.values())
    where = [j for j, column in enumerate(columns) if isinstance(column, NumberColumn)]
    numbers, spread = joined_moments(answers, len(where)), np.zeros((3, len(columns)))
    spread[:, where] = numbers.counts, numbers.means, numbers.squares
    lengths = {j: len(column.categories) for j, column in enumerate(columns) if isinstance(column, CategoryColumn)}
    seen = np.logical_or.reduce([answer.truths("seen", sum(lengths.values())) for answer in answers.values()])
    ends = np.cumsum(list(lengths.values()))
    parts = np.split(seen, ends[:-1]) if lengths else []
    return Statistics(rows, Moments(*spread), dict(zip(lengths, parts, strict=True)))
