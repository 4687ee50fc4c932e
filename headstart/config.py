"""From a table of a configuration file to a constructor call, with errors that name the key.

Arguments may be parts that are themselves built from a name, or from a table with a name: a room that has such parts
tells of them with `register`.
"""

import inspect
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union

from headstart.errors import UsageError, did_you_mean

__all__ = [
    "PYTHON",
    "Plan",
    "choices",
    "described",
    "given",
    "plan",
    "register",
    "settings_of",
    "type_path",
    "with_fields_of",
]

PYTHON = "python"
"""The key under which a record says that something was a Python object, and of which type."""

Call = TypeVar("Call", bound=Callable[..., Any])
Registry = Mapping[str, Callable[..., Any]]

_PARTS: dict[type, Registry] = {}


def register(kind: type, registry: Registry) -> None:
    """Let arguments that are annotated with ``kind`` be given by one of the names of ``registry``."""
    _PARTS[kind] = registry


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
    parameters = {name: parameter for name, parameter in settings_of(call).items() if name not in given}
    hints = _hints(call, parameters)
    for key in table:
        if key not in parameters:
            raise UsageError(f"{where}.{key} is not a setting.", did_you_mean(key, parameters))
    arguments, resolved = dict(given), {}
    for name, parameter in parameters.items():
        key = f"{where}.{name}"
        if name in table:
            arguments[name] = _convert(table[name], hints[name], key)
            resolved[name] = table[name]
        elif parameter.default is inspect.Parameter.empty:
            raise UsageError(f"{key} is missing.", f"Set it in the file or with --set {key}=VALUE.")
        else:
            resolved[name] = _plain(parameter.default)
    return Plan(call, arguments, {name: value for name, value in resolved.items() if value is not None})


def settings_of(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments of a call that a file can say: not those that are functions, or shapes found along the way."""
    parameters = inspect.signature(call).parameters
    hints = _hints(call, parameters)
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty or _readers(hints[name])
    }


def given(thing: Any) -> Plan:
    """The plan of something that is there already, for which no file could ask."""
    return Plan(lambda: thing, {}, described(thing))


def choices(call: Callable[..., Any], name: str) -> tuple[str, ...]:
    """The names of the parts that an argument takes, if it takes parts."""
    readers = _readers(_hints(call, inspect.signature(call).parameters)[name])
    return tuple(name for reader in readers if isinstance(reader, _Part) for name in reader.names())


def with_fields_of(options: type) -> Callable[[Call], Call]:
    """Spell a call's ``**options`` out in its signature as the fields of a dataclass, so that files can say them."""

    def decorate(call: Call) -> Call:
        own = [p for p in inspect.signature(call).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        hints = typing.get_type_hints(options)
        spelled = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in fields(options)
        ]
        call.__signature__ = inspect.Signature([*own, *spelled])  # type: ignore[attr-defined]
        return call

    return decorate


def _hints(call: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    hints = typing.get_type_hints(call.__init__ if inspect.isclass(call) else call)
    if is_dataclass(call):  # a converter's argument may be anything, and its field says what becomes of it
        hints |= typing.get_type_hints(call)
    return {name: hints.get(name, parameter.annotation) for name, parameter in parameters.items()}


class _Reader(ABC):
    """One type that an argument may have: whether a file's value is of it, and what becomes of the value."""

    @abstractmethod
    def takes(self, value: Any) -> bool:
        """Whether the value is meant for this type."""

    @abstractmethod
    def words(self) -> list[str]:
        """What the type takes, for people."""

    def read(self, value: Any, key: str) -> Any:
        """The value as the constructor wants it."""
        return value

    def names(self) -> tuple[str, ...]:
        """The words that stand for something of this type."""
        return ()


class _Kind(_Reader):
    """A whole number, a text, a switch."""

    WORDS: typing.ClassVar[dict[type, str]] = {int: "a whole number", str: "a string", bool: "true or false"}

    def __init__(self, kind: type):
        self.kind = kind

    def takes(self, value: Any) -> bool:
        return type(value) is self.kind

    def words(self) -> list[str]:
        return [self.WORDS[self.kind]]


class _Number(_Reader):
    """Any number; a whole one becomes a float."""

    def takes(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def read(self, value: Any, key: str) -> float:
        return float(value)

    def words(self) -> list[str]:
        return ["a number"]


class _Choice(_Reader):
    """One of some given values."""

    def __init__(self, values: tuple[Any, ...]):
        self.values = values

    def takes(self, value: Any) -> bool:
        return value in self.values

    def words(self) -> list[str]:
        return [repr(value) for value in self.values]

    def names(self) -> tuple[str, ...]:
        return tuple(value for value in self.values if isinstance(value, str))


class _List(_Reader):
    """Several values of one type."""

    def __init__(self, hint: Any):
        self.hint = hint

    def takes(self, value: Any) -> bool:
        return isinstance(value, (list, tuple))

    def read(self, value: Any, key: str) -> tuple[Any, ...]:
        return tuple(_convert(item, self.hint, key) for item in value)

    def words(self) -> list[str]:
        return [f"a list, each {_described(_readers(self.hint))}"]


class _Part(_Reader):
    """A part by its name, or by a table with its name and settings."""

    def __init__(self, registry: Registry):
        self.registry = registry

    def takes(self, value: Any) -> bool:
        return isinstance(value, (str, Mapping))

    def read(self, value: Any, key: str) -> Any:
        table = {"name": value} if isinstance(value, str) else dict(value)
        name = table.pop("name", None)
        if not isinstance(name, str) or name not in self.registry:
            raise UsageError(f"{key} = {name!r} is not known.", did_you_mean(str(name), self.registry))
        return plan(self.registry[name], table, key).build()

    def words(self) -> list[str]:
        return [f"one of {', '.join(self.registry)} (or a table with that name)"]

    def names(self) -> tuple[str, ...]:
        return tuple(self.registry)


class _Table(_Reader):
    """A table that its constructor reads itself."""

    def takes(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def words(self) -> list[str]:
        return ["a table"]


def _readers(hint: Any) -> list[_Reader]:
    """The types that an annotation allows and a file can say, ``float`` last since it takes whole numbers too."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    readers = [reader for option in options if (reader := _reader(option)) is not None]
    return sorted(readers, key=lambda reader: isinstance(reader, _Number))


def _reader(option: Any) -> _Reader | None:
    origin, arguments = typing.get_origin(option), typing.get_args(option)
    if origin is Literal:
        return _Choice(arguments)
    if origin in (tuple, list, Sequence):
        return _List(arguments[0])
    if origin in (dict, Mapping) or option in (dict, Mapping):
        return _Table()
    if isinstance(option, type) and option in _PARTS:
        return _Part(_PARTS[option])
    if option is float:
        return _Number()
    return _Kind(option) if option in _Kind.WORDS else None


def _convert(value: Any, hint: Any, key: str) -> Any:
    """A value as the argument's type wants it."""
    readers = _readers(hint)
    for reader in readers:
        if reader.takes(value):
            return reader.read(value, key)
    names = [name for reader in readers for name in reader.names()]
    if names and isinstance(value, str):
        raise UsageError(f"{key} = {value!r} is not known.", did_you_mean(value, names))
    raise UsageError(f"{key} = {value!r} has the wrong type.", f"It takes {_described(readers)}.")


def _described(readers: Iterable[_Reader]) -> str:
    return " or ".join(word for reader in readers for word in reader.words())


def _plain(default: Any) -> Any:
    """A default as a configuration file would say it."""
    if isinstance(default, tuple):
        return list(default)
    for kind, registry in _PARTS.items():
        if isinstance(default, kind):
            name = next((name for name, call in registry.items() if call is type(default)), None)
            changed = _changed(default)
            return {"name": name, **changed} if changed and name is not None else name
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


def described(thing: Any) -> dict[str, Any]:
    """What a Python object was, for a record: its type, and its fields where it is a dataclass.

    >>> from headstart.core import HessianFree
    >>> described(HessianFree(radius=0.01))
    {'name': 'HessianFree', 'python': 'headstart.core.curvature.HessianFree', 'radius': 0.01}
    """
    own = {field.name: getattr(thing, field.name) for field in fields(thing)} if is_dataclass(thing) else {}
    settings = {name: said for name, value in own.items() if (said := _said(value)) is not None}
    return {"name": type(thing).__name__, PYTHON: type_path(thing), **settings}


def type_path(thing: Any) -> str:
    """Where the type of an object can be imported from."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _said(value: Any) -> Any:
    """A field of an object as JSON can say it; the same for the same value in every process."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple(_PARTS)) and (named := _plain(value)) is not None:
        return named
    if isinstance(value, Mapping):
        return {str(key): _said(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_said(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return value.item() if value.shape == () and value.dtype.kind in "biuf" else f"{value.dtype}{list(value.shape)}"
    if is_dataclass(value) and not isinstance(value, type):
        return described(value)
    if inspect.isroutine(value) or isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
