"""Which network a file's parameters are of: a bundled one by name and settings, a user's own by its import path."""

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np

from headstart.config import plan
from headstart.errors import UsageError, did_you_mean
from headstart.models import MODELS, EquinoxModel, LinenModel, Model, NNXModel, PairModel

__all__ = ["Architecture", "architecture_of", "built"]

ADAPTERS = {adapter.__name__: adapter for adapter in (EquinoxModel, LinenModel, NNXModel, PairModel)}
LIBRARIES = {EquinoxModel: ("equinox",), LinenModel: ("flax",), NNXModel: ("flax",), PairModel: ()}
COUNTS = ("blocks", "depth", "layers")
"""Settings that say how many layers there are, of which each has an array of its own."""
COMMON_SIZE = 4096
"""Sizes up to this, such as those of images, need not be reflected in the number of parameters."""


@dataclass(frozen=True)
class Architecture:
    """A network as a file can say it."""

    name: str
    """Of a bundled network, of the adapter of a user's own, or of a user's own class."""
    settings: Mapping[str, Any]
    """What it is built with; functions and modules of a user's own by their import paths."""
    imports: tuple[str, ...] = ()
    """What has to be imported to build it: code that is not headstart's."""
    needs: Mapping[str, Any] | None = None
    """The packages that a user's own network needs, with the versions it was trained with."""
    missing: str | None = None
    """What cannot be imported anywhere, such as a lambda: whoever loads the file has to bring the model."""

    @property
    def bundled(self) -> bool:
        """Whether headstart alone can build it."""
        return self.name in MODELS


def architecture_of(model: Model) -> Architecture:
    """What a file says of a network."""
    name = next((name for name, build in MODELS.items() if build is type(model)), None)
    said = _Said()
    settings = {field.name: said.value(getattr(model, field.name)) for field in _fields(model)}
    if name is None and type(model) not in ADAPTERS.values():
        settings, name = {"build": said.call(type(model), settings)}, type(model).__name__
    settings = {key: value for key, value in settings.items() if value is not None}
    packages = {path.partition(".")[0] for path in said.imports} | set(LIBRARIES.get(type(model), ()))
    needs = {package: _version(package) for package in sorted(packages)} or None
    return Architecture(name or type(model).__name__, settings, tuple(dict.fromkeys(said.imports)), needs, said.missing)


def built(architecture: Architecture, trust: bool, arrays: Mapping[str, np.ndarray]) -> Model:
    """The network; code of others is imported only where the file is trusted."""
    if architecture.bundled:
        _check_sizes(architecture.settings, arrays)
        return plan(MODELS[architecture.name], architecture.settings, "architecture").build()
    needs = ", ".join(f"{name} {said}" for name, said in (architecture.needs or {}).items())
    if architecture.missing is not None:
        raise UsageError(
            f"The model was made by {architecture.missing}, which cannot be imported from anywhere.",
            "Bring the same model: hs.load(path, model=...)" + (f". It needs {needs}." if needs else "."),
        )
    if not trust:
        raise UsageError(
            f"The model is built by code that the file names and does not hold: {', '.join(architecture.imports)}.",
            f"It needs {needs}. If you trust that code on this machine, load with trust=True (--trust).",
        )
    settings = {key: _imported(value) for key, value in architecture.settings.items()}
    model = ADAPTERS[architecture.name](**settings) if architecture.name in ADAPTERS else settings.get("build")
    if not isinstance(model, Model):
        raise UsageError(f"{architecture.name} is no model.", did_you_mean(architecture.name, (*MODELS, *ADAPTERS)))
    return model


def _fields(model: Any) -> tuple[Any, ...]:
    return fields(model) if is_dataclass(model) else ()


class _Said:
    """Settings as plain values, and what has to be imported to have them back."""

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.missing: str | None = None

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        if isinstance(value, jax.ShapeDtypeStruct):
            return {"shape": list(value.shape), "dtype": str(value.dtype)}
        if isinstance(value, functools.partial) and not value.args:
            return {**self.call(value.func, {k: self.value(v) for k, v in value.keywords.items()}), "partial": True}
        if inspect.isroutine(value) or isinstance(value, type):
            return {"import": self.path(value)}
        if is_dataclass(value):
            # A Linen module has fields of its own that are no settings.
            own = {f.name: getattr(value, f.name) for f in fields(value) if f.init and f.name not in ("parent", "name")}
            defaults = {f.name: f.default for f in fields(value)}
            own = {name: item for name, item in own.items() if item is not defaults[name]}
            return self.call(type(value), {name: self.value(item) for name, item in own.items()})
        self.missing = self.missing or f"{type(value).__name__} ({value!r:.80})"
        return None

    def call(self, function: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
        return {"import": self.path(function), "keywords": {k: v for k, v in keywords.items() if v is not None}}

    def path(self, function: Callable[..., Any]) -> str:
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
        if not module or module == "__main__" or not all(part.isidentifier() for part in name.split(".")):
            self.missing = self.missing or f"{module}.{name}"
        found = f"{module}.{name}"
        self.imports.append(found)
        return found


def _imported(value: Any) -> Any:
    """A setting as the network's constructor wants it; only of files that are trusted."""
    if isinstance(value, list):
        return tuple(_imported(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    if "shape" in value:
        return jax.ShapeDtypeStruct(tuple(value["shape"]), np.dtype(value["dtype"]))
    function = _found(str(value.get("import")))
    if "keywords" not in value:
        return function
    keywords = {name: _imported(item) for name, item in value["keywords"].items()}
    return functools.partial(function, **keywords) if value.get("partial") else function(**keywords)


def _found(path: str) -> Any:
    """What an import path names: the longest part of it that is a module, and an attribute of that."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
            for name in parts[length:]:
                found = getattr(found, name)
            return found
        except ModuleNotFoundError:
            continue
        except AttributeError as error:
            raise UsageError(f"{path} cannot be imported: {error}.", "Install the version it was made with.") from error
    raise UsageError(f"{path} cannot be imported: there is no module {parts[0]}.", "Install it, or mend the path.")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(of unknown version)"


def _check_sizes(settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse sizes that no network of these arrays has, before anything is built with them."""
    largest = max(COMMON_SIZE, *(array.size for array in arrays.values()), 0)
    for name, value in settings.items():
        numbers = value if isinstance(value, list) else [value]
        most = max(len(arrays), 16) if name in COUNTS else largest
        if len(numbers) > max(len(arrays), 16) or any(isinstance(n, int) and n > most for n in numbers):
            raise UsageError(f"architecture.{name} does not fit the file's arrays.", "Get the file anew.")
