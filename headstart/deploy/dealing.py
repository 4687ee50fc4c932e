"""Data in one place dealt out to the folders of several sites, as if it had always been there: for trials.

Each client's rows stay together and in their order. The clients, in the order of their names, go to the sites in turn.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headstart.data.sources import HAR
from headstart.data.sources.locate import contents
from headstart.data.tables.folders import client_files
from headstart.data.tables.loading import form_of
from headstart.data.tables.reading import source_of
from headstart.errors import UsageError

__all__ = ["deal_out_files"]


def deal_out_files(section: Mapping[str, Any], sites: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Put a part of an experiment's data into each site's folder.

    Returns, for each site, what its section [data] says of where its data is, relative to its folder.
    """
    name = section.get("name", "own")
    if name == "har":
        return _persons(section.get("folder"), sites)
    if name != "own" or "path" not in section:
        raise UsageError(
            f"The data set {name} has no files that sites could have.",
            "Bring a table, a folder with one file per client, a tree of images, or har.",
        )
    path = Path(section["path"])
    if not path.exists():
        raise UsageError(f"There is no data at {path}.", "Mend path in the section [data] of the experiment.")
    form = form_of(path)
    if form == "prepared":
        raise UsageError(f"{path} is prepared data, which is all in one piece.", "Give the tables it was made from.")
    if form == "table":
        return _rows(path, section.get("client"), sites)
    parts = client_files(path) if form == "folder" else {p.name: p for p in path.iterdir() if p.is_dir()}
    return _files(path, parts, sites)


def _turns(names: Sequence[Any], sites: Mapping[str, Path], where: Path) -> dict[str, list[Any]]:
    """Which clients each site has."""
    if len(names) < len(sites):
        raise UsageError(
            f"{where} has {len(names)} clients, too few for {len(sites)} sites.", "Ask for fewer sites: each needs one."
        )
    ordered, count = sorted(names), len(sites)
    return {site: ordered[i::count] for i, site in enumerate(sites)}


def _rows(path: Path, client: Any, sites: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    source = source_of(path)
    if client not in source.schema.names:
        raise UsageError(
            f"{path} has no column {client!r} for clients.", f"Set client to one of: {', '.join(source.schema.names)}."
        )
    table = pa.Table.from_batches(list(source.batches(source.schema.names)))
    owners = table.column(client)
    owners = owners.cast(owners.type.value_type) if pa.types.is_dictionary(owners.type) else owners
    names = [name for name in pc.unique(owners).to_pylist() if name is not None]
    placed = {}
    for site, own in _turns(names, sites, path).items():
        rows = table.filter(pc.is_in(owners, pa.array(own, owners.type)))
        sites[site].mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, sites[site] / "data.parquet")
        placed[site] = {"path": "data.parquet"}
    return placed


def _files(path: Path, parts: Mapping[str, Path], sites: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    for site, own in _turns(list(parts), sites, path).items():
        target = sites[site] / "data"
        target.mkdir(parents=True, exist_ok=True)
        for name in own:
            _copy(parts[name], target / parts[name].name)
    return {site: {"path": "data"} for site in sites}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link if _same_disk(source, target) else shutil.copy2)
    else:
        shutil.copy2(source, target)


def _same_disk(source: Path, target: Path) -> bool:
    return source.stat().st_dev == target.parent.stat().st_dev


def _persons(folder: str | None, sites: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Recordings by person, in the form of the data set's own archive of arrays."""
    data = contents(HAR, folder)
    for site, own in _turns(np.unique(data.person).tolist(), sites, Path("har")).items():
        rows = np.isin(data.person, own)
        target = sites[site] / "data"
        target.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            target / "har.npz", x=data.x[rows], y=data.y[rows], subject=data.person[rows], exp=data.experiment[rows],
            segment=data.segment[rows], activities=np.array(data.activities),
        )  # fmt: skip
    return {site: {"folder": "data"} for site in sites}
