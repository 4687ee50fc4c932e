"""The threat table names tests: each of them is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(
    set(re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?", (ROOT / "docs/deploy_threats.md").read_text()))
)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_the_table_names_is_there(file, test):
    assert ("def " + test if test else "") in (ROOT / file).read_text()


def test_the_table_names_tests():
    assert len(NAMED) > 10
