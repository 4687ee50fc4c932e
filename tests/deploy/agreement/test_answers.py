"""What a site tells, to the last key; and what a server does not believe."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headstart.deploy.agreement import Agreement, Negotiation, Said, SiteData
from headstart.deploy.agreement.holdings import text_mark
from headstart.errors import UsageError
from tests.deploy.agreement.sites import agree, dealt, opened, shipped
from tests.deploy.agreement.test_same import SECTION, small_table

SITE_OF = {f"c{i}": f"site {i % 2}" for i in range(6)}


def talk(section, sites, changed=lambda step, site, said: said):
    """All questions and the answers to them, in order; answers may be changed on their way."""
    negotiation, heard = Negotiation(section), []
    while (question := negotiation.question()) is not None:
        step = question.said["step"]
        answers = {name: changed(step, name, shipped(site.answer(question))) for name, site in sites.items()}
        heard.append((step, question, answers))
        negotiation.take(answers)
    return negotiation.agreement(), heard


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(1)
    table = small_table(rng).append_column("id", pa.array([f"patient {i}" for i in range(120)]))
    return dealt(table, "who", SITE_OF, tmp_path)


TOLD = {
    "survey": ({"form", "label", "columns", "texts", "counting", "rows", "clients"}, set()),
    "columns": ({"extents", "categories", "clients", "labels"}, {"rows"}),
    "fit": (
        {"rows"},
        {"numbers", "train", "support", "query", "counts", "means", "squares", "seen", "classes"},
    ),
    "count": (set(), {"counts"}),
    "bend": (set(), {"counts", "means", "squares"}),
}


def test_only_these_sums_counts_and_sets_cross(paths):
    agreement, heard = talk(SECTION, opened(SECTION, paths))
    assert [step for step, _, _ in heard] == ["survey", "columns", "fit", *["count"] * 6, "bend"]
    for step, question, answers in heard:
        for answer in answers.values():
            assert (set(answer.said), set(answer.arrays)) == TOLD[step]
            # Nothing has one entry a row: a site of 60 rows sends less than that, but for counts by leading digits.
            assert all(len(array) < 60 for array in answer.arrays.values())
        if step == "survey":
            first = answers["site 0"].said
            assert first["columns"] == [["who", "texts"], ["age", "numbers"], ["pay", "numbers"], ["city", "texts"],
                                        ["label", "texts"], ["id", "texts"]]  # fmt: skip
            assert (first["rows"], first["clients"]) == (60, 3)
            marks = {text_mark(question.said["salt"], city) for city in ("Aix", "Bonn")}
            assert set(first["texts"]["city"]["marks"]) == marks
            assert first["texts"]["city"]["pairs"] == 6
            assert first["counting"] == {}
    # Ids were never told, not even those of a site that has few enough of them for categories.
    told = str([answer.said for _, _, answers in heard for answer in answers.values()])
    assert "patient" not in told
    assert heard[1][2]["site 0"].said == {
        "extents": {"age": "wide", "pay": "wide"},
        "categories": {"city": ["Aix", "Bonn"]},
        "clients": {"kind": "text", "names": ["c0", "c2", "c4"]},
        "labels": {"texts": ["no", "yes"]},
    }
    assert [column.name for column in agreement.encoding.columns] == ["age", "pay", "city"]


def test_labels_of_a_regression_are_not_listed(tmp_path):
    table = small_table().set_column(4, "label", pa.array(np.arange(120) % 9))
    sites = opened({**SECTION, "kind": "regression"}, dealt(table, "who", SITE_OF, tmp_path))
    _, heard = talk({**SECTION, "kind": "regression"}, sites)
    assert heard[1][2]["site 0"].said["labels"] == {"whole": None, "extent": "wide"}


def replaced(said, **arrays):
    return Said(said.said, {**said.arrays, **arrays})


WRONG = {
    "a mean that is no number": ("fit", lambda a: replaced(a, means=a.arrays["means"] * np.nan), "not finite"),
    "squares below 0": ("fit", lambda a: replaced(a, squares=-a.arrays["squares"] - 1), "below 0"),
    "negative counts": ("fit", lambda a: replaced(a, counts=-a.arrays["counts"]), "no counts"),
    "counts with fractions": ("fit", lambda a: replaced(a, counts=a.arrays["counts"] + 0.5), "no counts"),
    "a missing array": ("fit", lambda a: Said(a.said, {}), "no numbers"),
    "another shape": ("fit", lambda a: replaced(a, means=np.zeros(7)), "of shape [7] instead of [2]"),
    "others' clients": ("fit", lambda a: replaced(a, numbers=a.arrays["numbers"] + 1), "other clients than before"),
    "no samples": ("fit", lambda a: replaced(a, query=a.arrays["query"] * 0), "a client without query samples"),
    "truths": ("fit", lambda a: replaced(a, seen=a.arrays["seen"] * 1 + 3), "neither yes nor no"),
    "a list without end": (
        "columns",
        lambda a: Said({**a.said, "categories": {"city": [f"c{i}" for i in range(10**4)]}}, a.arrays),
        "10000 city, of which there are 100 at most",
    ),
    "a long text": (
        "columns",
        lambda a: Said({**a.said, "categories": {"city": ["x" * 10**6]}}, a.arrays),
        "among its city",
    ),
    "a number for a text": (
        "columns",
        lambda a: Said({**a.said, "categories": {"city": [7]}}, a.arrays),
        "7 among its city",
    ),
    "another site's client": (
        "columns",
        lambda a: Said({**a.said, "clients": {"kind": "text", "names": ["c0", "c3", "c5"]}}, a.arrays),
        "a client 'c0', whom site 'site 0' has as well",
    ),
    "a wild extent": (
        "columns",
        lambda a: Said({**a.said, "extents": {"age": [0, 5, 10**30], "pay": "wide"}}, a.arrays),
        "no extent of column 'age'",
    ),
    "no columns": ("survey", lambda a: Said({**a.said, "columns": "many"}), "no list of columns"),
    "a negative number of rows": ("survey", lambda a: Said({**a.said, "rows": -5}), "-5 as rows"),
    "counts that change": (
        "count",
        lambda a: replaced(a, counts=a.arrays["counts"] + 1),
        "counts that do not add up",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_answers_are_refused_by_name(paths, wrong):
    at, change, reason = WRONG[wrong]
    calls = iter(range(100))

    def changed(step, site, said):
        lies = step == at and site == "site 1" and (at != "count" or next(calls) == 1)
        return change(said) if lies else said

    with pytest.raises(UsageError, match="Site 'site 1' answered with") as error:
        talk(SECTION, opened(SECTION, paths), changed)
    assert reason in error.value.problem


def test_all_sites_answer_all_questions(paths):
    sites = opened(SECTION, paths)
    negotiation = Negotiation(SECTION)
    negotiation.take({name: site.answer(negotiation.question()) for name, site in sites.items()})
    with pytest.raises(UsageError, match="Not the same sites have answered all questions: site 1"):
        negotiation.take({"site 0": sites["site 0"].answer(negotiation.question())})


def test_a_site_describes_only_the_columns_that_it_declares(paths):
    shy = {name: {**SECTION, "path": str(path)} for name, path in paths.items()}
    shy["site 0"]["describe"] = ["age", "city"]
    sites = {name: SiteData.read(section, name) for name, section in shy.items()}
    with pytest.raises(UsageError, match="Site 'site 1' has a column 'pay', site 'site 0' has not, or does not desc"):
        agree(SECTION, sites)
    named = {**SECTION, "features": ["age", "pay"]}
    with pytest.raises(UsageError, match="column 'pay' is not among those that this site describes"):
        agree(named, {name: SiteData.read({**section, **named}, name) for name, section in shy.items()})
    fewer = {**SECTION, "features": ["age", "city"]}
    agreement = agree(fewer, {name: SiteData.read({**section, **fewer}, name) for name, section in shy.items()})
    assert [column.name for column in agreement.encoding.columns] == ["age", "city"]


def test_rare_categories_can_be_kept_back(tmp_path):
    cities = ["Aix"] * 118 + ["Lonely", "Lonely"]
    table = small_table().set_column(3, "city", pa.array(cities))
    paths = dealt(table, "who", SITE_OF, tmp_path)
    sites = {
        name: SiteData.read({**SECTION, "path": str(path), "least_count": 3}, name) for name, path in paths.items()
    }
    agreement, heard = talk(SECTION, sites)
    assert "Lonely" not in str([said for _, _, answers in heard for said in answers.values()])
    assert agreement.encoding.columns[2].categories == ("Aix",)
    assert sites["site 1"].clients(agreement).pool.x[-1, 2] == -1  # none of the categories


def test_data_that_changed_no_longer_fit(paths):
    agreement = agree(SECTION, opened(SECTION, paths))
    table = pq.read_table(paths["site 0"])
    pq.write_table(table.slice(0, len(table) - 4), paths["site 0"])
    with pytest.raises(UsageError, match="The data of site 'site 0' is no longer what was agreed on: client 'c4'"):
        opened(SECTION, paths)["site 0"].clients(agreement)
    with pytest.raises(UsageError, match="it has 3 clients of the agreement rather than 0"):
        SiteData.read({**SECTION, "path": str(paths["site 1"])}, "a stranger").clients(agreement)


def test_a_late_joiner_brings_new_clients(paths, tmp_path):
    agreement = agree(SECTION, opened(SECTION, paths))
    late = small_table(np.random.default_rng(9)).set_column(0, "who", pa.array(np.repeat(["late", "c9"], 60)))
    late = late.set_column(3, "city", pa.array(["Aix", "Rome"] * 60))
    pq.write_table(late, tmp_path / "late.parquet")
    site = SiteData.read({**SECTION, "path": str(tmp_path / "late.parquet")}, "late site")
    answer = shipped(site.answer(shipped(agreement.welcome_question())))
    assert set(answer.said) == {"names"}
    assert set(answer.arrays) == {"train", "support", "query"}
    wider = Agreement.from_json(agreement.with_newcomer("late site", answer).to_json())
    assert wider.layout.names == (*agreement.layout.names, "c9", "late")
    assert (wider.layout.trained, wider.layout.validation) == (agreement.layout.trained, agreement.layout.validation)
    local = site.clients(wider)
    assert local.numbers == [6, 7]
    assert wider.federation().names[local.numbers[0]] == "c9"
    assert local.count("query", 7) == wider.counts["query"][7] == 12
    assert np.isin(local.pool.x[:, 2], [-1, 0]).all()  # Rome is unknown
    choosy = {**SECTION, "min_samples": 50}
    pq.write_table(late.slice(0, 100), tmp_path / "late.parquet")  # 60 rows of one, and 40 of the other
    site = SiteData.read({**choosy, "path": str(tmp_path / "late.parquet")}, "late site")
    assert site.answer(agreement.welcome_question()).said["names"] == ["late"]
    stranger = Said({"names": ["c0"]}, answer.arrays)
    with pytest.raises(UsageError, match="a client 'c0', whom site 'site 0' has"):
        agreement.with_newcomer("another", stranger)


def test_what_cannot_be_joined_is_said(tmp_path):
    table = small_table()
    paths = dealt(table, "who", SITE_OF, tmp_path)
    other = pq.read_table(paths["site 1"])
    pq.write_table(other.set_column(1, "age", pa.array(["old"] * len(other))), paths["site 1"])
    with pytest.raises(UsageError, match="Column 'age' holds texts at site 'site 1', but numbers at site 'site 0'"):
        agree(SECTION, opened(SECTION, paths))
    np.savez(tmp_path / "a.npz", x=np.zeros((9, 3, 3), np.float32), y=np.arange(9) % 2)
    np.savez(tmp_path / "b.npz", x=np.zeros((9, 2, 3), np.float32), y=np.arange(9) % 2)
    own = {"name": "own"}
    with pytest.raises(UsageError, match="has the shape of samples"):
        agree(own, opened(own, {"a": tmp_path / "a.npz", "b": tmp_path / "b.npz"}))
    with pytest.raises(UsageError, match="the samples of this data set have no owners"):
        Negotiation({"name": "mnist"})


JUNK = (
    None,
    True,
    -1,
    10**30,
    1.5,
    float("nan"),
    "",
    "x" * 20_000,
    [],
    [[]],
    {},
    {"a": {}},
    [None],
    ["a", "a"],
    [1, 2],
)


def spoilt(rng, value):
    """The value with junk somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = sorted(value)[rng.integers(len(value))]
        return {**value, key: spoilt(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.6:
        place = rng.integers(len(value))
        return [spoilt(rng, one) if i == place else one for i, one in enumerate(value)]
    return JUNK[rng.integers(len(JUNK))]


def spoilt_array(rng, array):
    ways = [
        lambda: np.full(array.shape, np.nan), lambda: array.astype(float) * -1e300, lambda: array[:0],
        lambda: array[..., None], lambda: np.array(3), lambda: array.astype(complex), lambda: -array.astype(float),
        lambda: (array.astype(float) + 1e18).astype(np.int64), lambda: np.zeros((2, 10**5)),
    ]  # fmt: skip
    return ways[rng.integers(len(ways))]()


def test_no_answer_brings_the_server_down(paths):
    """Whatever a site answers, there is an agreement or an error that a person can read."""
    _, heard = talk(SECTION, opened(SECTION, paths))
    recorded = [answers for _, _, answers in heard]
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(400):
        at = rng.integers(len(recorded))
        negotiation = Negotiation(SECTION)
        try:
            for i, answers in enumerate(recorded):
                said, arrays = answers["site 1"]
                if i == at:
                    if arrays and rng.random() < 0.6:
                        name = sorted(arrays)[rng.integers(len(arrays))]
                        arrays = {**arrays, name: spoilt_array(rng, arrays[name])}
                    else:
                        said = spoilt(rng, said)
                negotiation.take({**answers, "site 1": Said(said, arrays)})
            assert negotiation.agreement().digest
        except UsageError:
            refused += 1
    assert refused > 250
