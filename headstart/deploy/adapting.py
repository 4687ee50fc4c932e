"""A site's own models, made of the shared one on its own machine and from its own rows."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.artifact import Predictor, load
from headstart.data.sources import har
from headstart.data.tables.folders import client_files
from headstart.data.tables.loading import form_of
from headstart.data.tables.reading import ending, source_of
from headstart.deploy.places import SitePlace
from headstart.errors import UsageError, did_you_mean

__all__ = ["adapt"]

OWN = "models"
"""The folder of a site in which its clients' own models are."""


def adapt(
    folder: str | Path,
    *,
    method: str | None = None,
    model: str | Path | None = None,
    clients: list[str] | None = None,
    steps: int | None = None,
    lr: float | None = None,
    seed: int = 0,
) -> dict[str, Predictor]:
    """Make the shared model each client's own, for the clients of a site.

    The shared model is the one that the server sent at the end of ``method``, or the file ``model``. The results are
    also written to the folder ``models`` of the site's, one file per client. Rows are held back in turn to choose how
    many steps of which size serve best, as `headstart.artifact.Predictor.adapt` does.
    """
    place = SitePlace.read(Path(folder))
    shared = load(_shared(place, method) if model is None else Path(model))
    rows = dict(_clients(place))
    for name in clients or ():
        if name not in rows:
            raise UsageError(f"{place.name} has no client {name!r}.", did_you_mean(name, rows))
    own = {}
    for name in clients or rows:
        own[name] = shared.adapt(rows[name], steps=steps, lr=lr, seed=seed)
        own[name].save(place.folder / OWN / f"{_file_name(name)}.safetensors")
    return own


def _shared(place: SitePlace, method: str | None) -> Path:
    models = {path.stem: path for path in sorted(place.models.glob("*.safetensors"))}
    if not models:
        raise UsageError(
            f"{place.models} has no model: the server sends it at the end of training.",
            "Wait for that, or name a model file with --model.",
        )
    if method is None:
        if len(models) > 1:
            raise UsageError(f"There are models of {', '.join(models)}.", "Choose one with --method.")
        return next(iter(models.values()))
    if method not in models:
        raise UsageError(f"There is no model of {method}.", did_you_mean(method, models))
    return models[method]


def _clients(place: SitePlace) -> Iterator[tuple[str, Any]]:
    """The clients of a site with their rows, as a model file takes them."""
    section = {**_agreed_section(place), **place.data}
    if section.get("name") == "har":
        yield from _persons(place.folder / section.get("folder", "data"))
        return
    if "path" not in section:
        raise UsageError(f"{place.folder / 'site.toml'} does not say where the data is.", "Set path in [data].")
    path = place.folder / section["path"]
    if not path.exists():
        raise UsageError(f"There is no data at {path}.", f"Mend path in [data] of {place.folder / 'site.toml'}.")
    if ending(path) == ".npz":
        yield place.name, path
    elif form_of(path) == "folder":
        yield from client_files(path).items()
    elif form_of(path) == "images":
        yield from ((child.name, child) for child in sorted(path.iterdir()) if child.is_dir())
    else:
        yield from _owners(place.name, path, section.get("client"))


def _agreed_section(place: SitePlace) -> Mapping[str, Any]:
    """The section [data] of the experiment that this site has last taken part in."""
    begun = sorted(place.folder.glob("state/*/begun.json"), key=lambda path: path.stat().st_mtime)
    if not begun:
        return {}
    section = json.loads(begun[-1].read_text()).get("config", {}).get("data", {})
    return {key: value for key, value in section.items() if key not in ("path", "folder")}


def _owners(site: str, path: Path, client: str | None) -> Iterator[tuple[str, pa.Table]]:
    source = source_of(path)
    table = pa.Table.from_batches(list(source.batches(source.schema.names)))
    if client not in table.column_names:
        yield site, table
        return
    owners = table.column(client)
    owners = owners.cast(owners.type.value_type) if pa.types.is_dictionary(owners.type) else owners
    for name in sorted(name for name in pc.unique(owners).to_pylist() if name is not None):
        yield str(name), table.filter(pc.equal(owners, pa.scalar(name, owners.type)))


def _persons(folder: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    samples = har(folder)
    assert samples.classes is not None
    owners, labels = np.asarray(samples.columns["person"]), np.asarray(samples.classes)[samples.y]
    for person in np.unique(owners):
        rows = owners == person
        yield str(person), {"x": samples.x[rows], "y": labels[rows]}


def _file_name(client: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in client)
