"""A table dealt out to sites, and an agreement among them, beside what the simulator makes of the whole table."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headstart.data.tables import open_data
from headstart.deploy.agreement import Agreement, Negotiation, Said, SiteData
from headstart.errors import UsageError


def shipped(said):
    """What comes out at the other end of a wire that carries JSON and arrays."""
    return Said(json.loads(json.dumps(said.said)), {name: np.array(array) for name, array in said.arrays.items()})


def agree(section, sites):
    """The agreement of some sites' data."""
    negotiation = Negotiation(section)
    while (question := negotiation.question()) is not None:
        negotiation.take({name: shipped(site.answer(shipped(question))) for name, site in sites.items()})
    return Agreement.from_json(json.loads(json.dumps(negotiation.agreement().to_json())))


def dealt(table, client, sites, folder, *, csv=False):
    """Each site's rows of a table as a file; ``sites`` gives each client's site."""
    names = np.array([str(value) for value in table[client].to_pylist()])
    paths = {}
    for site in sorted(set(sites.values())):
        rows = np.flatnonzero([sites.get(name) == site for name in names])
        paths[site] = folder / f"{site}.{'csv' if csv else 'parquet'}"
        part = table.take(pa.array(rows))
        if csv:
            pa.csv.write_csv(part, paths[site])
        else:
            pq.write_table(part, paths[site])
    return paths


def opened(section, paths):
    return {site: SiteData.read({**section, "path": str(path)}, site) for site, path in paths.items()}


def assert_same(section, pooled_path, paths, tolerance=1e-6):
    """The sites' clients have what the simulator gives them of the whole table."""
    options = {key: value for key, value in section.items() if key != "name"}
    try:
        partition = open_data(str(pooled_path), **options)
    except UsageError:
        # What the simulator refuses, the sites do.
        with pytest.raises(UsageError):
            agree(section, opened(section, paths))
        return None
    sites = opened(section, paths)
    agreement = agree(section, sites)
    layout, samples = agreement.layout, partition.samples
    assert list(layout.names) == list(partition.names)
    assert (layout.total - layout.trained, layout.validation) == (partition.held_out, partition.validation)
    assert layout.classes == samples.classes
    if samples.transform is not None:
        assert_same_encoding(agreement.encoding, samples.transform, tolerance)
    for name in ("offset", "center", "scale"):
        np.testing.assert_allclose(getattr(agreement.target, name), getattr(samples.target, name), rtol=tolerance)
    pooled = {"train": partition.train, "query": partition.query, "support": partition.support or partition.train}
    for site in sites.values():
        local = site.clients(agreement)
        assert local.numbers == agreement.sites.get(site.site, [])
        own_scales = agreement.encoding is not None and agreement.encoding.per_client
        for number in local.numbers:
            for part, lists in pooled.items():
                rows, there = local.rows(part, number), lists[number]
                assert local.count(part, number) == len(there) == agreement.counts[part][number]
                pool = local.pool
                np.testing.assert_allclose(pool.x[rows], samples.x[there], rtol=tolerance if own_scales else 0)
                np.testing.assert_array_equal(pool.y[rows], samples.y[there])
    return agreement, partition


def assert_same_encoding(mine, theirs, tolerance):
    assert (mine.per_client, mine.limit, mine.features) == (theirs.per_client, theirs.limit, theirs.features)
    for one, other in zip(mine.columns, theirs.columns, strict=True):
        assert type(one) is type(other)
        assert one.name == other.name
        if hasattr(one, "categories"):
            assert (one.categories, one.known) == (other.categories, other.known)
            continue
        assert (one.offset, one.indicated, one.middle, one.bend) == (
            other.offset, other.indicated, other.middle, other.bend
        )  # fmt: skip
        spread = 1 / other.scale if other.scale else max(abs(other.center), 1e-30)
        for name in ("center", "fill"):
            assert abs(getattr(one, name) - getattr(other, name)) <= tolerance * max(spread, abs(getattr(other, name)))
        assert abs(one.scale - other.scale) <= tolerance * abs(other.scale)
