"""What was run, for people: settings that all units share, where they differ, and how far a run is the paper's."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headstart_papers.record import PaperExperiment, Profile, Row, Unit

__all__ = ["brief_settings", "flat", "full_settings", "seeds_in_turn", "size_note"]

LEFT_OUT = ("seeds", "together", "scores", "extras")
"""Of a unit's settings: what other parts of a report say."""
BRIEFLY = ("data", "model", "common", "train", "evaluate", "final")
LENGTHS = ("train.rounds", "train.samples")


def brief_settings(experiment: PaperExperiment) -> list[str]:
    """A line for data, model and so on."""
    lines = [
        f"{section}: {_inline(experiment.tables[section])}" for section in BRIEFLY if experiment.tables.get(section)
    ]
    counts = dict.fromkeys(seeds_in_turn(row) for row in sorted(experiment.rows.values(), key=lambda row: row.seeds))
    of = "all on the same data" if experiment.together else "each with data of its own"
    return [*lines, f"seeds: {'; '.join(counts)}, {of}"]


def seeds_in_turn(row: Row) -> str:
    """``3, then 10`` where claims were judged with three seeds before; ``10`` otherwise."""
    return ", then ".join(map(str, (*row.seeds_before, row.seeds)))


def full_settings(experiment: PaperExperiment, profile: Profile) -> str:
    """All settings as TOML: those of all units, then those in which rows and methods differ."""
    units = {f"{unit.row}.{unit.method}": flat(_told(unit)) for unit in experiment.units(profile, 1)}
    first = next(iter(units.values()))
    shared = {
        key: value for key, value in first.items() if all(other.get(key, ...) == value for other in units.values())
    }
    lines = [*_toml(shared)]
    for name, settings in units.items():
        own = {key: value for key, value in settings.items() if key not in shared}
        if own:
            lines += ["", f"[{name}]", *_toml(own)]
    return "\n".join(lines)


def size_note(experiment: PaperExperiment, profile: Profile, seeds: Iterable[int]) -> str | None:
    """How a run that is not the paper's in size differs from it, which has so many seeds; ``None`` for one that is."""
    full = {(unit.row, unit.method): flat(_told(unit)) for unit in experiment.units("full", 1)}
    lengths: dict[str, None] = {}
    others: dict[str, None] = {}
    for unit in experiment.units(profile, 1):
        mine, paper = flat(_told(unit)), full[unit.row, unit.method]
        for key in mine.keys() | paper.keys():
            if mine.get(key) == paper.get(key):
                continue
            if key in LENGTHS and mine.get(key) and paper.get(key):
                lengths[f"{mine[key]:,} of {paper[key]:,} {key.removeprefix('train.')}"] = None
            else:
                others[key] = None
    said = list(lengths)
    wanted, most = max(row.seeds for row in experiment.rows.values()), max(seeds, default=0)
    if most < wanted:
        said.append(f"{most} of {wanted} seeds")
    rows = experiment.row_ids(profile)
    if len(rows) < len(experiment.rows):
        said.append(f"{len(rows)} of {len(experiment.rows)} settings")
    if others:
        said.append(f"other {', '.join(sorted(others))}")
    return ", ".join(said) or None


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result


def _told(unit: Unit) -> dict[str, Any]:
    return {key: value for key, value in unit.settings.items() if key not in LEFT_OUT}


def _toml(settings: Mapping[str, Any]) -> Iterable[str]:
    return (f"{key} = {_value(value)}" for key, value in settings.items())


def _value(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _inline(table: Mapping[str, Any]) -> str:
    """``mnist, partition.name = "two-groups"``: the name first."""
    rest = [f"{key} = {_value(value)}" for key, value in flat(table).items() if key != "name"]
    return ", ".join(([str(table["name"])] if "name" in table else []) + rest)
