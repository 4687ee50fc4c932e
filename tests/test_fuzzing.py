"""A small part of `python -m tools.fuzzing`: broken configurations, tables and model files end in a message."""

import itertools
import random

import pytest

from tools.fuzzing.configurations import configurations
from tools.fuzzing.judge import Case, judged
from tools.fuzzing.models import models
from tools.fuzzing.tables import tables


def one_model(rng, folder):
    return models(rng, folder, labels=("score",))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "count"), [(configurations, 15), (tables, 15), (one_model, 30)])
def test_whatever_is_broken_ends_in_a_message(kind, count, tmp_path):
    verdicts = [judged(case) for case in itertools.islice(kind(random.Random("small"), tmp_path), count)]
    assert {verdict.case.name: verdict.fault for verdict in verdicts if verdict.fault} == {}
    assert {verdict.code for verdict in verdicts} >= {2}


def test_what_ends_badly_is_found():
    def broken():
        raise KeyError("x")

    assert "KeyError" in judged(Case("", broken, ())).fault
    assert "ended with 3" in judged(Case("", lambda: (3, ""), ())).fault
    assert (
        "names none of ('people.csv',)" in judged(Case("", lambda: (2, "Something is wrong."), ("people.csv",))).fault
    )
    assert judged(Case("", lambda: (2, "people.csv is empty."), ("people.csv",))).fault is None
