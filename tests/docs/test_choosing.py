"""The page on which algorithm to take says what the comparisons beside it say."""

import pytest

from headstart.comparisons import load_comparison
from tools import measured

FILES = sorted(measured.FOLDER.glob("*.json"))


def test_the_measured_part_is_made_from_the_comparisons():
    text = measured.PAGE.read_text(encoding="utf-8")
    assert measured.page(text) == text, "python -m tools.measured writes it again"


def test_every_data_set_of_the_page_has_its_experiment():
    assert {path.stem for path in measured.FOLDER.glob("*.toml")} == set(measured.CLIENTS)
    assert {path.stem for path in FILES} <= set(measured.CLIENTS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_there_are_eight_methods_with_five_seeds_on_new_clients(path):
    found = load_comparison(path)
    assert len(found.entries) >= 8
    assert found.seeds == [0, 1, 2, 3, 4]
    assert found.judged == "new"
