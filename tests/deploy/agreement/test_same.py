"""What sites agree on is what the simulator makes of all their rows together: to the row, and to the last digits."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.tables import open_data
from headstart.data.tables.middles import EXACT, ROUGH, Descent, lower_median
from headstart.data.tables.moments import Moments
from headstart.data.tables.spans import Extent
from tests.deploy.agreement.sites import agree, assert_same, assert_same_encoding, dealt, opened

COLUMNS = {
    "plain": lambda rng, n: rng.normal(40, 10, n),
    "tiny": lambda rng, n: rng.normal(0, 1e-6, n),
    "huge": lambda rng, n: rng.normal(5e5, 1e6, n),
    "missing": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    "all but gone": lambda rng, n: np.where(rng.random(n) < 0.97, np.nan, rng.normal(size=n)),
    "constant": lambda rng, n: np.full(n, 0.1),
    "zero": lambda rng, n: np.zeros(n),
    "heavy": lambda rng, n: np.exp(rng.normal(0, 3, n)),
    "heavy below zero": lambda rng, n: -np.exp(rng.normal(0, 3, n)) * 1e-3,
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.8, 0.0, rng.gamma(0.2, 50, n)),
    "mostly one odd number": lambda rng, n: np.where(rng.random(n) < 0.7, -9.99, rng.standard_cauchy(n)),
    "seconds": lambda rng, n: 1.7e9 + rng.uniform(0, 1e4, n),
    "whole": lambda rng, n: rng.integers(0, 7, n),
    "truth": lambda rng, n: rng.random(n) < 0.4,
    "rare": lambda rng, n: rng.choice(["a", "b", "c", "Ω z"], n, p=[0.5, 0.3, 0.19, 0.01]),
    "gaps": lambda rng, n: [None if u < 0.2 else "yes" if u < 0.6 else "no" for u in rng.random(n)],
    "id": lambda rng, n: [f"id {u}" for u in rng.permutation(n)],
}
LABELS = {
    "texts": lambda rng, n: rng.choice(["run", "sit", "walk"], n, p=[0.6, 0.35, 0.05]),
    "whole": lambda rng, n: rng.integers(-2, 5, n),
    "truth": lambda rng, n: rng.random(n) < 0.5,
    "number": lambda rng, n: rng.normal(1e6, 3.0, n),
    "many whole": lambda rng, n: rng.integers(0, 60, n),
}


def made(rng, columns, label, clients, named):
    """A table of unequal clients, rows in any order; each client's rows are in two groups at least."""
    sizes = rng.integers(6, 40, clients)
    owner = rng.permutation(np.repeat(np.arange(clients), sizes))
    n = len(owner)
    names = np.array([f"client {i}" for i in range(clients)]) if named else np.arange(clients) * 7
    group = np.zeros(n, int)
    for client in range(clients):
        group[owner == client] = np.arange(sizes[client]) % int(rng.integers(2, 6))
    content = {"who": names[owner], **{name: COLUMNS[name](rng, n) for name in columns}, "label": LABELS[label](rng, n)}
    table = pa.table({**content, "visit": group, "when": rng.permutation(n)})
    twice = rng.integers(0, n, n // 10)  # rows that are alike
    return pa.concat_tables([table, table.take(pa.array(twice))])


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    columns=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=8, unique=True),
    label=st.sampled_from(sorted(LABELS)),
    clients=st.integers(3, 14),
    sites=st.integers(1, 6),
    named=st.booleans(),
    csv=st.booleans(),
    more=st.sampled_from([
        {}, {"standardize": "client"}, {"standardize": "none"}, {"group": "visit"}, {"order": "when"}, {"shots": 2},
        {"held_out": 0.4, "validation": 1}, {"min_samples": 15}, {"seed": 5}, {"kind": "regression"},
        {"features": ["visit", "when"]},
    ]),
)  # fmt: skip
def test_agreement_is_that_of_all_rows(seed, columns, label, clients, sites, named, csv, more, tmp_path_factory):
    if more.get("kind") == "regression" and label in ("texts", "truth"):
        label = "whole"
    folder, rng = tmp_path_factory.mktemp("sites"), np.random.default_rng(seed)
    columns = ["plain", *columns] if columns == ["id"] else columns
    table = made(rng, dict.fromkeys(columns), label, clients, named)
    names = sorted({str(name) for name in table["who"].to_pylist()})
    site_of = {name: f"site {rng.integers(sites)}" for name in names}
    paths = dealt(table, "who", site_of, folder, csv=csv)
    whole = folder / ("whole.csv" if csv else "whole.parquet")
    if csv:
        pa.csv.write_csv(table, whole)
    else:
        pq.write_table(table, whole)
    assert_same({"name": "own", "client": "who", "label": "label", **more}, whole, paths)


def small_table(rng=None, clients=6, rows=20):
    rng = np.random.default_rng(1) if rng is None else rng
    n = clients * rows
    return pa.table({
        "who": np.repeat([f"c{i}" for i in range(clients)], rows),
        "age": rng.normal(40, 10, n),
        "pay": np.exp(rng.normal(0, 3, n)),
        "city": rng.choice(["Aix", "Bonn"], n),
        "label": rng.choice(["no", "yes"], n),
    })  # fmt: skip


SECTION = {"name": "own", "client": "who", "label": "label"}


def test_a_site_without_a_client_column_is_one_client(tmp_path):
    table = small_table()
    (tmp_path / "whole").mkdir()
    paths = {}
    for name in np.unique(table["who"]):
        rows = table.filter(pa.compute.equal(table["who"], name)).drop_columns(["who"])
        paths[name] = tmp_path / f"{name}.parquet"
        pq.write_table(rows, paths[name])
        pq.write_table(rows, tmp_path / "whole" / f"{name}.parquet")
    agreement, _ = assert_same(SECTION, tmp_path / "whole", paths)
    assert dict(zip(agreement.layout.names, agreement.site_of, strict=True)) == {name: name for name in paths}


def test_folders_of_client_files(tmp_path):
    table = small_table()
    for name in np.unique(table["who"]):
        rows = table.filter(pa.compute.equal(table["who"], name)).drop_columns(["who"])
        for folder in ("whole", "one" if name < "c3" else "other"):
            (tmp_path / folder).mkdir(exist_ok=True)
            pq.write_table(rows, tmp_path / folder / f"{name}.parquet")
    assert_same(SECTION, tmp_path / "whole", {site: tmp_path / site for site in ("one", "other")})


@pytest.mark.parametrize("shape", [(3,), (4, 4)], ids=["rows of numbers", "arrays"])
def test_arrays_of_clients(tmp_path, shape):
    rng = np.random.default_rng(2)
    for i in range(6):
        arrays = {"x": rng.normal(size=(12 + i, *shape)).astype(np.float32), "y": rng.integers(0, 3, 12 + i)}
        for folder in ("whole", "one" if i < 2 else "other"):
            (tmp_path / folder).mkdir(exist_ok=True)
            np.savez(tmp_path / folder / f"c{i}.npz", **arrays)
    sites = {site: tmp_path / site for site in ("one", "other")}
    assert_same({"name": "own"}, tmp_path / "whole", sites)
    single = {f"c{i}": tmp_path / "whole" / f"c{i}.npz" for i in range(6)}
    assert_same({"name": "own"}, tmp_path / "whole", single)


def test_trees_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(3)
    for i in range(5):
        for label in ("cat", "dog"):
            for k in range(4):
                picture = image.fromarray(rng.integers(0, 255, (6, 6), dtype=np.uint8))
                for folder in (tmp_path / "whole", tmp_path / ("one" if i < 2 else "other")):
                    (folder / f"c{i}" / label).mkdir(parents=True, exist_ok=True)
                    picture.save(folder / f"c{i}" / label / f"{k}.png")
    assert_same({"name": "own"}, tmp_path / "whole", {site: tmp_path / site for site in ("one", "other")})
    single = {f"c{i}": tmp_path / "whole" / f"c{i}" for i in range(5)}
    assert_same({"name": "own"}, tmp_path / "whole", single)


def test_columns_and_classes_that_a_site_lacks(tmp_path):
    """One site has no value of a column and only one class; another has whole numbers where others have fractions."""
    table = small_table()
    site_of = {f"c{i}": f"site {i // 2}" for i in range(6)}
    first = np.array([site_of[name] == "site 0" for name in table["who"].to_pylist()])
    second = np.array([site_of[name] == "site 1" for name in table["who"].to_pylist()])
    gone = pa.array([None if away else 1.5 * i for i, away in enumerate(first)])
    one_class = pa.array(
        ["yes" if away else label for away, label in zip(first, table["label"].to_pylist(), strict=True)]
    )
    whole = pa.array([float(i) if here else i + 0.5 for i, here in enumerate(second)])
    table = table.append_column("gone", gone).set_column(4, "label", one_class).append_column("count", whole)
    paths = dealt(table, "who", site_of, tmp_path, csv=True)
    pa.csv.write_csv(table, tmp_path / "whole.csv")
    assert_same(SECTION, tmp_path / "whole.csv", paths)


def test_a_column_that_counts_the_rows_of_all_sites_is_left_out(tmp_path):
    table = small_table()
    numbers = np.random.default_rng(3).permutation(len(table)) + 7
    table = table.append_column("row", pa.array(numbers)).append_column("visits", pa.array(numbers * 2))
    paths = dealt(table, "who", {f"c{i}": f"site {i % 3}" for i in range(6)}, tmp_path)
    pq.write_table(table, tmp_path / "all.parquet")
    agreement, partition = assert_same(SECTION, tmp_path / "all.parquet", paths)
    assert [column.name for column in agreement.encoding.columns] == ["age", "pay", "city", "visits"]
    assert any("'row' is left out: numbers that count the rows" in note for note in partition.notes)


def test_rows_without_label_are_dropped_alike(tmp_path):
    table = small_table()
    labels = [None if i % 7 == 0 else label for i, label in enumerate(table["label"].to_pylist())]
    table = table.set_column(4, "label", pa.array(labels))
    paths = dealt(table, "who", {f"c{i}": f"site {i % 2}" for i in range(6)}, tmp_path)
    pq.write_table(table, tmp_path / "whole.parquet")
    assert_same({**SECTION, "drop_missing": True}, tmp_path / "whole.parquet", paths)


def test_inputs_are_those_of_the_simulator(tmp_path):
    table = small_table()
    pq.write_table(table, tmp_path / "whole.parquet")
    paths = dealt(table, "who", {f"c{i}": f"site {i % 2}" for i in range(6)}, tmp_path)
    partition = open_data(str(tmp_path / "whole.parquet"), client="who", label="label")
    sites = opened(SECTION, paths)
    agreement = agree(SECTION, sites)
    federation, pooled = agreement.federation(), partition.federation()
    assert federation.task == pooled.task
    assert federation.clients.shapes() == pooled.clients.shapes()
    assert (federation.total, federation.trained, federation.names) == (pooled.total, pooled.trained, pooled.names)
    for part, counts in pooled.counts.items():
        np.testing.assert_array_equal(federation.counts[part], counts)
    for name, site in sites.items():
        local = site.clients(agreement)
        client = agreement.sites[name][0]
        batch, expected = (
            clients.view("query", index).sample(None, "full")
            for clients, index in ((local._clients, 0), (pooled.clients, client))
        )
        rows = local.count("query", client)
        np.testing.assert_allclose(_samples(batch).x[:rows], _samples(expected).x[:rows], atol=1e-6)


def _samples(batch):
    return getattr(batch, "samples", batch)


def test_medians_by_counting():
    rng = np.random.default_rng(4)
    for digits in (EXACT, ROUGH):
        for n in (1, 2, 7, 100):
            values = np.round(rng.standard_cauchy(n) * 10 ** rng.uniform(-6, 6), 3).astype(np.float32)
            descent = Descent(digits)
            while not descent.done:
                descent = descent.after(sum(descent.counts(part) for part in np.array_split(values, 3)))
            assert descent.median == lower_median(values, digits)
            if digits == EXACT:
                assert descent.median == np.sort(values)[(n - 1) // 2]
    assert Descent(EXACT).after(np.zeros(256, int)).median is None


@given(st.lists(st.floats(-1e20, 1e20), min_size=1), st.lists(st.floats(-1e20, 1e20), min_size=1))
def test_extents_join_exactly(one, other):
    joined = Extent.between(min(one), max(one)).joined(Extent.between(min(other), max(other)))
    both = one + other
    assert joined == Extent.between(min(both), max(both))
    assert joined.constant == (min(both) == max(both))
    if Extent.between(min(one), max(one)).wide:
        assert joined.offset == 0


def test_moments_join_to_those_of_all_rows():
    rng = np.random.default_rng(5)
    x = rng.normal(1e4, 3, (999, 4)).astype(np.float32)
    joined = Moments.of(x[:1], np.arange(1))
    for part in (x[1:1], x[1:400], x[400:]):
        joined = joined.joined(Moments.of(part, np.arange(len(part))))
    np.testing.assert_allclose(joined.means, x.astype(np.float64).mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(joined.deviations, x.astype(np.float64).std(axis=0), rtol=1e-12)


def test_an_agreement_stays_what_it_is_in_a_file(tmp_path):
    paths = dealt(small_table(), "who", {f"c{i}": f"site {i % 2}" for i in range(6)}, tmp_path)
    one, other = (agree(SECTION, opened(SECTION, paths)) for _ in range(2))
    assert one.digest == other.digest
    assert_same_encoding(one.encoding, other.encoding, 0)
