import jax.numpy as jnp
import numpy as np
import pytest

from headstart.data import sources
from headstart.data.sources.omniglot import _shrunk
from headstart.errors import UsageError
from headstart.problems import Examples
from tests.data.sources import files

# By part: alphabets and how many characters they have. Later parts are sorted after earlier ones whatever their names.
ALPHABETS = [("images_background", "Greek", 2), ("images_background", "N_Ko", 1), ("images_evaluation", "Angelic", 2)]
DRAWERS = (1, 2, 20)


def drawing(seed):
    ink = np.zeros((105, 105), bool)
    for row, column in np.random.default_rng(seed).integers(0, 90, (3, 2)):
        ink[row : row + 15, column : column + 3] = True
    return ink


FACTS = [
    (part, alphabet, character, drawer)
    for part, alphabet, characters in ALPHABETS
    for character in range(1, characters + 1)
    for drawer in DRAWERS
]
INK = np.stack([drawing(seed) for seed in range(len(FACTS))])


def unpacked():
    return {
        f"{part}/{alphabet}/character{character:02d}/{row:04d}_{drawer:02d}.png": files.png(INK[row])
        for row, (part, alphabet, character, drawer) in enumerate(FACTS)
    }


def archives():
    return {
        f"{part}.zip": files.zipped({name: data for name, data in unpacked().items() if name.startswith(part)})
        for part in ("images_background", "images_evaluation")
    }


def prepared():
    names = [alphabet for _, alphabet, _ in ALPHABETS]
    return {
        "omniglot.npz": files.npz(
            x=_shrunk(INK) // 255,
            alphabet=np.array([names.index(fact[1]) for fact in FACTS], np.uint8),
            alphabet_names=np.array(names),
            char_in_alphabet=np.array([fact[2] for fact in FACTS], np.uint8),
            drawer=np.array([fact[3] for fact in FACTS], np.uint8),
            evaluation=np.array([fact[0].endswith("evaluation") for fact in FACTS], np.uint8),
        )
    }


@pytest.mark.parametrize("form", [prepared, unpacked, archives])
@pytest.mark.parametrize("below", ["", "omniglot/"])
def test_every_form_says_the_same(tmp_path, form, below):
    files.write(tmp_path, {f"{below}{name}": data for name, data in form().items()})
    samples = sources.omniglot(tmp_path)
    np.testing.assert_array_equal(samples.x, _shrunk(INK))
    assert samples.y.tolist() == np.repeat(np.arange(5), len(DRAWERS)).tolist()
    names = ["Greek/character01", "Greek/character02", "N_Ko/character01", "Angelic/character01", "Angelic/character02"]
    assert list(samples.classes) == names
    assert samples.column("character").tolist() == [names[y] for y in samples.y]
    assert samples.column("alphabet").tolist() == [fact[1] for fact in FACTS]
    assert samples.column("drawer").tolist() == [fact[3] for fact in FACTS]
    assert samples.column("evaluation").tolist() == [fact[0] == "images_evaluation" for fact in FACTS]
    assert samples.test is None
    batch = samples.to_examples(Examples(jnp.asarray(samples.x), jnp.asarray(samples.y)))
    assert set(np.unique(batch.x)) == {0.0, 1.0}


@pytest.mark.parametrize("column", range(3, 100))
def test_a_stroke_of_three_pixels_never_breaks(column):
    ink = np.zeros((2, 105, 105), bool)
    ink[0, :, column : column + 3] = True
    ink[1, column : column + 3] = True
    small = _shrunk(ink)
    assert (small[0].max(axis=1) == 255).all()
    np.testing.assert_array_equal(small[1], small[0].T)
    middle = np.flatnonzero(small[0, 0]).mean()
    assert abs((middle + 0.5) * 105 / 28 - (column + 1.5)) < 2


def test_paper_stays_white_and_ink_black():
    assert _shrunk(np.zeros((1, 105, 105), bool)).max() == 0
    assert _shrunk(np.ones((1, 105, 105), bool)).min() == 255


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images_background.zip": b""}, "images_background.zip cannot be read"),
        ({"images_background.zip": files.zipped({"readme.txt": b""})}, "images_background.zip has no drawings"),
        (
            {"images_evaluation.zip": files.zipped({"A/character01/0001_01.png": b"?"})},
            "images_evaluation.zip cannot be",
        ),
        (
            {"images_evaluation.zip": files.zipped({"A/character01/0001_01.png": files.png(np.ones((28, 28)))})},
            "character01/0001_01.png is 28x28 pixels and not 105x105",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, change, message):
    files.write(tmp_path, archives() | change)
    with pytest.raises(UsageError, match=message):
        sources.omniglot(tmp_path)
