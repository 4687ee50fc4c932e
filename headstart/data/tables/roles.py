"""Which column of a table is what: the client, the label, the features, and what orders or groups rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from headstart.data.tables.reading import is_text
from headstart.errors import UsageError, did_you_mean

__all__ = ["Holding", "Roles", "holding", "left_out", "roles_of"]

MOST_NAMED = 5
"""Of more columns that are left out for one reason, only the number is told."""

NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""What a column without a name of its own is called by those who write and read tables."""

Holding = Literal["numbers", "texts", "times", "nothing", "something else"]
"""What a column holds, as far as its use is concerned."""


@dataclass(frozen=True)
class Roles:
    """The columns in use."""

    client: str
    label: str
    features: tuple[str, ...]
    group: str | None = None
    order: str | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """Every column in use, once."""
        named = [self.client, self.label, *self.features, self.group, self.order]
        return tuple(dict.fromkeys(name for name in named if name is not None))


def holding(kind: pa.DataType) -> Holding:
    """What a column of an Arrow type holds."""
    types = pa.types
    if types.is_dictionary(kind):
        return holding(kind.value_type) if not types.is_boolean(kind.value_type) else "texts"
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if is_text(kind):
        return "texts"
    if types.is_temporal(kind):
        return "times"
    return "nothing" if types.is_null(kind) else "something else"


def roles_of(
    schema: pa.Schema,
    name: str,
    *,
    client: str,
    label: str,
    features: Sequence[str] | None = None,
    group: str | None = None,
    order: str | None = None,
    renamed: Sequence[str] = (),
) -> tuple[Roles, tuple[str, ...]]:
    """Match the columns that were asked for with those of a table, and say which others are no features.

    Left out, all other columns that hold numbers or texts are features. ``renamed`` are those whose names another has.
    """
    for role, column in {"client": client, "label": label, "group": group, "order": order}.items():
        if column is not None:
            if f"{column} (2)" in renamed:
                # Which is meant, nobody knows; and a second label among the features would give the first away.
                raise UsageError(f"{name} has two columns {column!r} ({role}).", "Remove one, or rename it.")
            _there(schema, name, role, column)
            _check_plain(schema, name, role, column)
    if holding(schema.field(label).type) == "times":
        raise UsageError(
            f"{name}: the label {label!r} holds times, neither classes nor numbers.",
            "Write what is to be predicted of them as a number (days until then, the hour).",
        )
    for column in features or ():
        _there(schema, name, "features", column)
        if column in (client, label):
            role = "label" if column == label else "client"
            raise UsageError(
                f"{name}: column {column!r} is the {role} and a feature too.",
                "Take it out of the features: a model would see what it is to predict."
                if role == "label"
                else "Take it out of the features; a client's own model needs no name.",
            )
    if client == label:
        raise UsageError(f"{name}: column {client!r} is the client and the label too.", "Name two columns.")
    chosen: tuple[str, ...] = tuple(dict.fromkeys(features or ()))
    notes: tuple[str, ...] = ()
    if features is None:
        taken = {client, label, group, order}
        chosen, notes = _usable(schema, [column for column in schema.names if column not in taken])
    else:
        for column in chosen:
            _check_usable(name, column, schema.field(column).type)
    if not chosen:
        others = f" that can be used. {' '.join(notes)}" if notes else "."
        raise UsageError(f"{name} has no feature columns{others}", "Add columns that a model can predict from.")
    if order is not None and holding(schema.field(order).type) not in ("numbers", "times"):
        raise UsageError(
            f"{name}: column {order!r} cannot order rows: it holds {holding(schema.field(order).type)}.",
            "Write it as numbers or as ISO times such as 2024-05-01 12:30:00.",
        )
    return Roles(client, label, chosen, group, order), notes


def _there(schema: pa.Schema, name: str, role: str, column: str) -> None:
    if column not in schema.names:
        raise UsageError(f"{name} has no column {column!r} ({role}).", did_you_mean(column, schema.names))


def _check_plain(schema: pa.Schema, name: str, role: str, column: str) -> None:
    """Refuse lists, structures and bytes where each row needs a value that can be told from others."""
    kind = schema.field(column).type
    if holding(kind) == "something else":
        raise UsageError(
            f"{name}: column {column!r} ({role}) holds {kind}, neither numbers nor texts.",
            "Write one number or text in each row.",
        )


def _usable(schema: pa.Schema, columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that can be features, and a word about each of the others."""
    reasons = {
        "times": "times (--order NAME tests on each client's last rows)",
        "nothing": "no values at all",
        "something else": "{kind}, neither numbers nor texts",
        "numbers of rows": "numbers of rows, as frames write them without a name (--features names others)",
    }
    held: dict[str, str] = {column: holding(schema.field(column).type) for column in columns}
    said: dict[str, list[str]] = {}
    for column, what in held.items():
        if NAMELESS.fullmatch(column) and pa.types.is_integer(schema.field(column).type):
            held[column] = what = "numbers of rows"
        if what in reasons:
            said.setdefault(reasons[what].format(kind=schema.field(column).type), []).append(column)
    notes = tuple(left_out(names, why) for why, names in said.items())
    return tuple(column for column, what in held.items() if what not in reasons), notes


def left_out(names: Sequence[str], why: str) -> str:
    """A word about columns that are left out for one reason."""
    if list(names) == [""]:
        columns = "The column without a name is"
    elif len(names) == 1:
        columns = f"The column {names[0]!r} is"
    else:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        columns = f"The columns {', '.join(map(repr, names[:MOST_NAMED]))}{more} are"
    return f"{columns} left out: {why}."


def _check_usable(name: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column that was asked for and can be no feature."""
    held = holding(kind)
    if held == "times":
        raise UsageError(
            f"{name}: column {column!r} holds times, which are no feature as they are.",
            f"Say order = {column!r} to split by time, take the column out of the features, "
            "or write what matters of it as numbers (the hour, say).",
        )
    if held == "nothing":
        raise UsageError(f"{name}: column {column!r} has no values at all.", "Take it out of the features.")
    if held == "something else":
        raise UsageError(
            f"{name}: column {column!r} holds {kind}, neither numbers nor texts.",
            "Spread it over columns of numbers, take it out of the features, or give arrays to arrays().",
        )
