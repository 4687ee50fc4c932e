"""A site's data, opened: a table, a folder of client files, arrays, images; of one client or of several."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.core import checks
from headstart.data.sources import har
from headstart.data.tables.folders import client_files, client_source
from headstart.data.tables.loading import are_rows, form_of, joined_npz, number_table
from headstart.data.tables.pictures import IMAGE_ENDINGS, image_files, read_pictures
from headstart.data.tables.reading import ChainedSource, Source, TableSource, ending, source_of
from headstart.deploy.agreement.holdings import ArrayHolding, Holding, TableHolding
from headstart.deploy.agreement.terms import HAR, Terms
from headstart.errors import UsageError

__all__ = ["open_holding"]


def open_holding(section: Mapping[str, Any], terms: Terms, site: str) -> Holding:
    """What lies at a site's own path; a site whose data do not say whose they are is one client, called as the site."""
    if terms.name == HAR:
        samples = har(section.get("folder"))
        assert samples.classes is not None
        return ArrayHolding(HAR, samples.x, samples.y, samples.columns, samples.classes, samples.test)
    if "path" not in section:
        raise UsageError(f"Site {site!r} does not say where its data is.", "Set path in its section [data].")
    path = Path(section["path"])
    if not path.exists():
        raise UsageError(f"There is no data at {path}.", f"Mend path in the section [data] of site {site!r}.")
    if ending(path) == ".npz":
        return _from_arrays(path.name, *joined_npz({site: path}), section, terms)
    form = form_of(path)
    if form == "prepared":
        raise UsageError(f"{path} is prepared data, of which nothing can be agreed.", "Give the table it was made of.")
    if form == "images":
        return _pictures(path, terms, site)
    if form == "folder":
        files = client_files(path)
        if all(file.suffix.lower() == ".npz" for file in files.values()):
            return _from_arrays(path.name, *joined_npz(files), section, terms)
        return _from_table(client_source(path, terms.client, source_of), section, terms)
    source = source_of(path)
    if terms.client not in source.schema.names:
        source = ChainedSource(source.name, [source], terms.client, [site])
    return _from_table(source, section, terms)


def _from_table(source: Source, section: Mapping[str, Any], terms: Terms) -> TableHolding:
    describe, least_count = section.get("describe"), section.get("least_count", 1)
    if describe is not None and not (isinstance(describe, list) and all(isinstance(name, str) for name in describe)):
        raise UsageError(f"data.describe = {describe!r} is no list of columns.", 'Write it as ["age", "height"].')
    checks.whole("data.least_count", least_count, 1)
    return TableHolding(source, terms, describe, least_count)


def _from_arrays(
    name: str, x: np.ndarray, y: np.ndarray, owners: pa.DictionaryArray, section: Mapping[str, Any], terms: Terms
) -> Holding:
    for role in ("group", "order"):
        if getattr(terms.natural, role) is not None:
            raise UsageError(f"{name} has no columns, and data.{role} names one.", "Give the samples as tables.")
    if x.dtype.kind not in "biuf":
        raise UsageError(f"{name}: x holds {x.dtype}.", "Give numbers, or a table with texts.")
    if not are_rows(x):
        return ArrayHolding(name, x, y, {terms.client: owners})
    data = number_table(name, x.reshape(len(x), -1), y, {terms.client: owners}, terms.choices.features)
    return _from_table(TableSource(name, data), section, replace(terms, label="y"))


def _pictures(path: Path, terms: Terms, site: str) -> ArrayHolding:
    """A tree client/label/image.png, or label/image.png of one client."""
    kinds = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    if any(file.suffix.lower() in IMAGE_ENDINGS for kind in kinds for file in kind.iterdir()):
        pairs = [(file, kind.name) for kind in kinds for file in sorted(kind.iterdir())
                 if file.suffix.lower() in IMAGE_ENDINGS]  # fmt: skip
        files, labels = [file for file, _ in pairs], [label for _, label in pairs]
        clients = [site] * len(files)
    else:
        files, clients, labels = image_files(path)
    return ArrayHolding(path.name, read_pictures(files), labels, {terms.client: clients})
