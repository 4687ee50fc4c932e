"""From a table of a configuration file to a constructor call, with errors that name the key."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Union

from headstart.core import CURVATURES, SCHEDULES, Curvature, Schedule
from headstart.data.partitions import PARTITIONS, Partitioner
from headstart.errors import UsageError, did_you_mean

__all__ = ["Plan", "plan"]

PARTS: dict[type, Mapping[str, Callable[..., Any]]] = {
    Curvature: CURVATURES,
    Schedule: SCHEDULES,
    Partitioner: PARTITIONS,
}
"""Constructor arguments that are themselves built from a name, or from a table with a name."""


@dataclass(frozen=True)
class Plan:
    """A checked constructor call: what to call, with what, and the same as plain values for the record."""

    call: Callable[..., Any]
    arguments: dict[str, Any]
    resolved: dict[str, Any]

    def build(self) -> Any:
        """Make the call."""
        return self.call(**self.arguments)


def plan(
    call: Callable[..., Any], table: Mapping[str, Any], where: str, given: Mapping[str, Any] | None = None
) -> Plan:
    """Match a table's keys and types with the arguments of ``call``; ``given`` are arguments not for the table."""
    given = given or {}
    parameters = {
        name: parameter for name, parameter in inspect.signature(call).parameters.items() if name not in given
    }
    hints = typing.get_type_hints(call.__init__ if inspect.isclass(call) else call)
    for key in table:
        if key not in parameters:
            raise UsageError(f"{where}.{key} is not a setting.", did_you_mean(key, parameters))
    arguments, resolved = dict(given), {}
    for name, parameter in parameters.items():
        key = f"{where}.{name}"
        if name in table:
            arguments[name] = _convert(table[name], hints.get(name, Any), key)
            resolved[name] = table[name]
        elif parameter.default is inspect.Parameter.empty:
            raise UsageError(f"{key} is missing.", f"Set it in the file or with --set {key}=VALUE.")
        else:
            resolved[name] = _plain(parameter.default)
    return Plan(call, arguments, {name: value for name, value in resolved.items() if value is not None})


def _convert(value: Any, hint: Any, key: str) -> Any:
    """A value as the argument's type wants it."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if isinstance(option, type) and option in PARTS and isinstance(value, (str, Mapping)):
            return _part(value, PARTS[option], key)
        literal = typing.get_args(option) if typing.get_origin(option) is Literal else None
        if literal is not None and value in literal:
            return value
        if typing.get_origin(option) is tuple and isinstance(value, (list, tuple)):
            inner = typing.get_args(option)[0]
            return tuple(_convert(item, inner, key) for item in value)
        if option is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            return value if int in options else float(value)
        if option in (int, str, bool) and type(value) is option:
            return value
    choices = [repr(choice) for option in options for choice in typing.get_args(option) if isinstance(choice, str)]
    if choices and isinstance(value, str) and not any(option is str for option in options):
        raise UsageError(f"{key} = {value!r} is not known.", did_you_mean(value, [c.strip("'") for c in choices]))
    raise UsageError(f"{key} = {value!r} has the wrong type.", f"It takes {_describe(options)}.")


def _part(value: str | Mapping[str, Any], registry: Mapping[str, Callable[..., Any]], key: str) -> Any:
    table = {"name": value} if isinstance(value, str) else dict(value)
    name = table.pop("name", None)
    if not isinstance(name, str) or name not in registry:
        raise UsageError(f"{key} = {name!r} is not known.", did_you_mean(str(name), registry))
    return plan(registry[name], table, key).build()


def _describe(options: tuple[Any, ...]) -> str:
    words = []
    for option in options:
        if isinstance(option, type) and option in PARTS:
            words.append(f"one of {', '.join(PARTS[option])} (or a table with that name)")
        elif typing.get_origin(option) is Literal:
            words.extend(repr(choice) for choice in typing.get_args(option))
        elif typing.get_origin(option) is tuple:
            words.append(f"a list, each {_describe(typing.get_args(option)[:1])}")
        elif option in _WORDS:
            words.append(_WORDS[option])
    return " or ".join(words)


_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


def _plain(default: Any) -> Any:
    """A default as a configuration file would say it."""
    if isinstance(default, tuple):
        return list(default)
    for part, registry in PARTS.items():
        if isinstance(default, part):
            name = next(name for name, kind in registry.items() if kind is type(default))
            changed = _changed(default)
            return {"name": name, **changed} if changed else name
    return default if isinstance(default, (bool, int, float, str)) else None


def _changed(part: Any) -> dict[str, Any]:
    """The settings of a part that are not its defaults."""
    if not is_dataclass(part):
        return {}
    return {
        field.name: _plain(value)
        for field in fields(part)
        if (value := getattr(part, field.name)) is not None and value != field.default
    }
