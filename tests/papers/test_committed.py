"""The results in the repository took hours: every one of them is still its unit's."""

from collections import Counter

import pytest

from headstart_papers.reading import find_experiments, papers_folder
from headstart_papers.store import Store

RESULTS = papers_folder() / "results"
EXPERIMENTS = {experiment.id: experiment for experiment in find_experiments()}


def test_every_experiment_has_results():
    found = Counter(path.parent.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*.json"))
    assert set(found) == set(EXPERIMENTS)


@pytest.mark.parametrize("id_", EXPERIMENTS)
def test_every_result_is_found_by_its_unit(id_):
    store = Store(RESULTS)
    units = {store.path(unit): unit for unit in EXPERIMENTS[id_].units("full")}
    for path in (RESULTS / id_).glob("*.json"):
        assert store.read(units[path]) is not None, f"{path.name}: the unit's fingerprint has changed"
