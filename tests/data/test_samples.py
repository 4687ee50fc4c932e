import numpy as np
import pytest

from headstart.data.samples import Samples, fingerprint
from headstart.errors import UsageError
from headstart.problems import Examples


def samples(rows=500, **options):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (rows, 7), dtype=np.uint8)
    return Samples("toy", x, rng.integers(0, 4, rows), tuple("abcd"), **options)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, bool])
def test_equal_rows_have_equal_fingerprints_and_others_do_not(dtype):
    values = np.random.default_rng(0).integers(0, 2, (2000, 9)).astype(dtype)
    _, which = np.unique(values, axis=0, return_inverse=True)
    prints = fingerprint(values)
    _, same = np.unique(prints, return_inverse=True)
    assert len(set(zip(which, same, strict=True))) == which.max() + 1 == same.max() + 1


def test_fingerprints_do_not_depend_on_blocks(monkeypatch):
    values = np.random.default_rng(0).normal(size=(100, 3))
    whole = fingerprint(values)
    monkeypatch.setattr("headstart.data.samples.BLOCK_BYTES", 100)
    np.testing.assert_array_equal(fingerprint(values), whole)


def test_a_shuffle_is_of_contents_not_of_rows():
    these = samples()
    order = np.random.default_rng(1).permutation(len(these))
    others = Samples("toy", these.x[order], these.y[order], these.classes)
    one, two = (s.shuffled(np.arange(len(s)), 3) for s in (these, others))
    np.testing.assert_array_equal(these.x[one], others.x[two])
    np.testing.assert_array_equal(these.y[one], others.y[two])


def test_seeds_and_purposes_shuffle_differently():
    these = samples()
    rows = np.arange(len(these))
    orders = [these.shuffled(rows, *how) for how in ((0,), (1,), (0, "test"))]
    assert all((a != b).mean() > 0.9 for a, b in zip(orders, [*orders[1:], orders[0]], strict=True))
    assert all(sorted(order) == rows.tolist() for order in orders)
    assert abs(np.corrcoef(orders[0], rows)[0, 1]) < 0.2


def test_columns_are_found_by_name_and_have_one_value_a_row():
    these = samples().with_columns(person=np.arange(500))
    assert these.column("person")[3] == 3
    with pytest.raises(UsageError, match=r"(?s)no column 'persn'.*person"):
        these.column("persn")
    with pytest.raises(UsageError, match="toy: person has 3 rows, but x has 500"):
        samples(columns={"person": np.arange(3)})


def test_a_task_says_what_a_model_must_look_like():
    assert samples().task.inputs == (7,)
    assert (samples().task.kind, samples().task.outputs) == ("classification", 4)
    regression = Samples("toy", np.zeros((3, 2)), np.zeros(3))
    assert (regression.task.kind, regression.task.outputs) == ("regression", 1)


def test_pixels_are_scaled_as_asked():
    pictures = samples(rows=256)
    x = np.arange(256, dtype=np.uint8).repeat(7).reshape(256, 7)
    batch = Examples(x, pictures.y)
    np.testing.assert_allclose(pictures.with_pixels("unit").to_examples(batch).x, x / 255, atol=1e-7)
    np.testing.assert_allclose(pictures.with_pixels("signed").to_examples(batch).x, x / 127.5 - 1, atol=1e-6)
    with pytest.raises(UsageError, match="signed"):
        pictures.with_pixels("sined")
