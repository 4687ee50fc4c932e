"""The tables of an experiment as a file has them: read, changed by settings, and given data."""

import copy
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from headstart.config import PYTHON, Plan, plan
from headstart.data import DATASETS, Federation, table
from headstart.data.partitions import Partition
from headstart.errors import UsageError, did_you_mean

__all__ = [
    "DEFAULT",
    "LENIENT",
    "OWN_DATA",
    "data_section",
    "given_options",
    "partition_of",
    "read_tables",
    "table_plan",
    "with_settings",
]

DEFAULT = "default.toml"
"""The experiment of `headstart run`."""
OWN_DATA = "own_data.toml"
"""What is done with data where no experiment says otherwise."""
LENIENT = {"drop_missing": True, "min_samples": 2}
"""Of one's own data, rows and clients that nothing can be learned from are left out, which is said."""


def read_tables(source: str | Path | None, default: str = DEFAULT) -> dict[str, Any]:
    """The tables of a TOML file, of TOML text (which has several lines), or of an experiment of the package."""
    if source is None:
        return tomllib.loads(resources.files("headstart.experiment").joinpath(default).read_text())
    if isinstance(source, str) and "\n" in source:
        return _parsed(source, "The text")
    path = Path(source)
    try:
        return _parsed(path.read_bytes().decode(), str(path))
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.", "Check the path.") from error
    except IsADirectoryError as error:
        raise UsageError(
            f"{path} is a folder.", f"Name a .toml file, or continue a run with --resume {path}."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "Mend the file there.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not valid TOML: {error}.", "Mend it there.") from error


def with_settings(tables: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """The tables with ``section.key=value`` settings applied; values are written as in TOML, bare words as strings."""
    result = copy.deepcopy(dict(tables))
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign or not all(name.strip() for name in key.split(".")):
            lacks = "a name before its '='" if sign else "'='"
            raise UsageError(f"--set {setting} lacks {lacks}.", "Write --set section.key=value.")
        *path, last = key.strip().split(".")
        table: Any = result
        for name in path:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise UsageError(f"--set {setting}: {name} is not a section.", "Write --set section.key=value.")
        value = _value(text.strip())
        if last == "name" and isinstance(table.get("name"), str) and table["name"] != value:
            # Another algorithm, dataset or model: the old one's settings are not meant for it.
            table.clear()
        table[last] = value
    return result


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def data_section(data: str | Path, **options: Any) -> dict[str, Any]:
    """The section [data] of a named data set, or of whatever lies at a path."""
    given = {name: value for name, value in options.items() if value is not None}
    named = str(data)
    if named in DATASETS and not Path(named).exists():
        extra = [name for name in given if name != "held_out"]
        if extra:
            raise UsageError(
                f"{', '.join(extra)} cannot be said of {named}, which has columns of its own.",
                "Leave that out, or change its partition with --set data.partition.NAME=VALUE.",
            )
        return {"name": named, **given}
    if not Path(named).exists():
        known = sorted(set(DATASETS) - {"own"})
        remedy = did_you_mean(named, known).replace("Choose one of", "Check the path, or choose a data set")
        raise UsageError(f"There is no file, folder or data set {named}.", remedy)
    # In full, so that the run can be resumed from elsewhere.
    return {"name": "own", "path": str(Path(named).resolve()), **given}


def partition_of(data: str | Path, settings: Iterable[str] = ()) -> Partition:
    """How a named data set, an experiment's data, or what lies at a path is dealt out.

    ``settings`` change the section [data]; of one's own data they say which columns are what.
    """
    named = str(data)
    section = dict(read_tables(named).get("data", {})) if named.endswith(".toml") else data_section(named)
    section = with_settings(section, settings)
    name = section.pop("name", None)
    if not isinstance(name, str) or name not in DATASETS:
        raise UsageError(f"{data}: data.name = {name!r} is no data set.", f"Choose one of: {', '.join(DATASETS)}.")
    federation: Federation = plan(DATASETS[name], section, "data").build()
    if federation.partition is None:
        raise UsageError(
            f"The clients of {name} draw their samples from distributions; nothing is dealt out.",
            "Look at another data set.",
        )
    return federation.partition


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not ``None``."""
    return {name: value for name, value in options.items() if value is not None}


def table_plan(data: Any, section: Mapping[str, Any]) -> Plan:
    """The plan of a table that is no file, with the options of its section."""
    options = {name: value for name, value in section.items() if name not in ("name", PYTHON)}
    for role in ("client", "label"):
        if role not in options:
            raise UsageError(f"Which column is the {role}?", f"Name it with {role}.")
    return Plan(lambda: table(data, **options), {}, dict(section))
