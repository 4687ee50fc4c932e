"""The page on which algorithm to take says what the comparisons beside it say."""

from headstart.comparisons import load_comparison
from tests.docs.fences import ROOT
from tools import measured


def test_the_measured_part_is_made_from_the_comparisons():
    text = measured.PAGE.read_text(encoding="utf-8")
    assert measured.page(text) == text, "python -m tools.measured writes it again"


def test_all_data_sets_are_there_with_eight_methods_and_five_seeds():
    for name in measured.CLIENTS:
        found = load_comparison(measured.FOLDER / f"{name}.json")
        assert len(found.entries) >= 8
        assert found.seeds == [0, 1, 2, 3, 4]
        assert found.judged == "new"
        assert (ROOT / "docs" / "comparisons" / f"{name}.toml").exists()
