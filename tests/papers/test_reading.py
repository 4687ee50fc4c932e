import pytest

from headstart.errors import UsageError
from headstart_papers.reading import find_experiments, read_record
from headstart_papers.record import Comparison, Operand

RECORD = """
title = "Toy"
place = "Table 0"
seeds = 2
[data]
name = "sine"
[model]
name = "mlp"
[methods.a]
title = "A"
name = "maml"
[methods.b]
title = "B"
name = "reptile"
[scores.error]
title = "Error"
metric = "loss"
[[rows]]
id = "one"
title = "One"
reported.error = { a = [0.5, 0.1] }
[[rows]]
id = "two"
title = "Two"
set = { data = { name = "mnist" } }
[[claims]]
text = "A is better"
place = "Table 0"
score = "error"
order = "a < b"
[quick]
seeds = 1
[tiny]
seeds = 1
"""


@pytest.fixture
def read(tmp_path):
    def record(old="", new=""):
        path = tmp_path / "toy.toml"
        assert old in RECORD
        path.write_text(RECORD.replace(old, new, 1) if old else RECORD)
        return read_record(path, "toy/toy")

    return record


def test_a_record_says_what_is_run(read):
    experiment = read()
    assert experiment.rows["one"].reported == {"error": {"a": (0.5, 0.1)}}
    (claim,) = experiment.claims
    assert claim.comparisons == (Comparison(Operand("b"), Operand("a")),)
    assert [unit.name for unit in experiment.units("full")] == [
        f"{row}.{method}.seed{seed}" for seed in (0, 1) for row in ("one", "two") for method in ("a", "b")
    ]
    assert len(list(experiment.units("full", seeds=3))) == 12
    names = {unit.row: unit.settings["data"]["name"] for unit in experiment.units("quick")}
    assert names == {"one": "sine", "two": "mnist"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('title = "Toy"', 'titel = "Toy"', "titel is not a setting"),
        ('place = "Table 0"\nseeds', "seeds", "place is missing"),
        ('order = "a < b"', 'order = "a < c"', "names 'c', which is not there"),
        ('order = "a < b"', 'order = "a b"', "'a b' cannot be read"),
        ('score = "error"', 'score = "eror"', "names 'eror'"),
        ("reported.error", "reported.eror", "row one: reported names 'eror'"),
        ("set = { data", "set = { date", "row two: set names 'date'"),
        ('metric = "loss"', 'metrics = "loss"', "scores.error: metrics is not a setting"),
        ("seeds = 2", "seeds = ", "is not valid TOML"),
    ],
)
def test_mistakes_are_named(read, old, new, told):
    with pytest.raises(UsageError, match=told) as error:
        read(old, new)
    assert "toy.toml" in str(error.value)


def test_papers_and_experiments_are_found_by_name():
    ids = [experiment.id for experiment in find_experiments(("wang/table3", "jamali"))]
    assert ids == ["wang/table3", "jamali/figure1", "jamali/figure1-signed"]
