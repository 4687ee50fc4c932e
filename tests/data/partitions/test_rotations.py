import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import IID, PARTITIONS, DirichletMixtures, Natural, Rotations
from headstart.errors import UsageError
from tests.data.partitions.common import assert_contract, samples


def test_every_client_sees_its_images_turned_by_its_angle():
    these = samples(30, side=3).with_columns(row=np.arange(120), who=np.arange(120) % 8)
    base = Natural("who", shots=1)
    plain, turned = base(these, 4), Rotations(base)(these, 4)
    angles = []
    for part in ("train", "query", "support"):
        for mine, seen in zip(getattr(plain, part), getattr(turned, part), strict=True):
            (angle,) = set(turned.samples.column("angle")[seen])
            np.testing.assert_array_equal(turned.samples.column("row")[seen], mine)
            np.testing.assert_array_equal(turned.samples.y[seen], these.y[mine])
            expected = [np.rot90(image, angle // 90) for image in these.x[mine]]
            np.testing.assert_array_equal(turned.samples.x[seen], expected)
            angles.append(angle)
    assert sorted(angles[:8]) == [0, 0, 90, 90, 180, 180, 270, 270]
    assert angles[:8] == angles[8:16] == angles[16:]
    assert turned.names == plain.names


@given(st.integers(2, 8), st.sampled_from([(0,), (0, 90), (15.0, -30.0, 180.0)]), st.integers(0, 2**32))
def test_contract(clients, angles, seed):
    assert_contract(Rotations(IID(clients), angles), samples(20, test=10, side=4), seed)


def test_a_sample_that_two_clients_have_is_turned_for_each():
    these = samples(20, 2, side=3).with_columns(row=np.arange(40))
    turned = Rotations(DirichletMixtures(4, 40, 10.0), (0, 90))(these, 0)
    assert turned.train.counts.tolist() == [32] * 4
    for rows in turned.train:
        assert len(set(turned.samples.column("angle")[rows])) == 1
    assert turned.notes


def test_other_angles_turn_the_same_way_as_quarter_turns():
    ramp = np.tile(np.arange(9, dtype=np.float32), (24, 9, 1))
    these = samples(6, side=9)
    these = type(these)("ramp", ramp, these.y, these.classes)
    turned = Rotations(IID(2), (89.9, 90.0))(these, 0).samples
    near, exact = (turned.x[turned.column("angle") == angle][0] for angle in (89.9, 90.0))
    np.testing.assert_allclose(near[2:-2, 2:-2], exact[2:-2, 2:-2], atol=0.02)


def test_bytes_and_colours_and_dictionaries_stay_what_they_are():
    these = samples(20)
    images = np.random.default_rng(0).integers(0, 255, (80, 5, 5, 3), dtype=np.uint8)
    these = type(these)(
        "colours", images, these.y, these.classes, columns={"who": pa.array(["a"] * 80).dictionary_encode()}
    )
    turned = Rotations(IID(4), (0, 45, 90, 180))(these, 0).samples
    assert (turned.x.dtype, turned.x.shape) == (np.uint8, (80, 5, 5, 3))
    assert turned.column("who").to_pylist() == ["a"] * 80


@pytest.mark.parametrize(
    ("options", "shape", "words"),
    [
        ({"angles": ()}, (2, 2), "angles is empty"),
        ({}, (4,), r"shape \(4,\) are no images"),
        ({}, (2, 3), "2 by 3 cannot be turned"),
        ({"angles": (float("nan"),)}, (2, 2), "angles = nan"),
    ],
)
def test_refusals(options, shape, words):
    these = samples(10)
    with pytest.raises(UsageError, match=words):
        Rotations(**options)(type(these)("toy", np.zeros((40, *shape)), these.y, these.classes), 0)


def test_half_turns_suit_any_image():
    these = samples(10)
    these = type(these)("toy", np.zeros((40, 2, 3)), these.y, these.classes)
    assert Rotations(IID(2), (0, 180))(these, 0).samples.x.shape == (40, 2, 3)


def test_names_are_those_of_the_registry():
    assert all(name == name.lower() and "_" not in name for name in PARTITIONS)
