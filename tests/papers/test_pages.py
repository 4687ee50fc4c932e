"""The pages of the documentation are those of the committed results."""

import re

import pytest

from headstart.errors import UsageError
from headstart_papers import check_pages
from headstart_papers.assessment import assess
from headstart_papers.listing import listed
from headstart_papers.quoting import Quoting
from headstart_papers.reading import find_experiments, papers_folder
from headstart_papers.results import load
from tests.papers.made_up import experiment, fill, write

PAGE = papers_folder().parent / "docs" / "reproduction.md"
RESULTS = papers_folder() / "results"
EXPERIMENTS = {record.id: record for record in find_experiments()}


def test_every_number_on_the_pages_is_that_of_the_results():
    assert check_pages() == []


def test_a_folder_without_pages_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"There is no .*missing\.md to check"):
        check_pages(docs=tmp_path / "missing.md")


def test_the_page_can_be_read():
    lines = PAGE.read_text().splitlines()
    assert len(lines) <= 400
    assert lines.index("## Discoveries") < 25
    assert sum(line.startswith("![") for line in lines) == 5  # a figure per paper
    for _, target in re.findall(r"(!?)\[[^\]]*\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target


def test_every_claim_is_listed_once():
    """Each claim of each record is on the page, and none twice."""
    claims = listed(assess(record, RESULTS, "full") for record in EXPERIMENTS.values())
    assert sum(len(claim.readings) for claim in claims) == sum(len(record.claims) for record in EXPERIMENTS.values())
    assert len({(claim.paper, claim.text, claim.place) for claim in claims}) == len(claims)
    text = PAGE.read_text()
    for claim in claims:
        assert text.count(f"| {claim.text} ([{claim.place}](") == 1, claim.text
        assert claim.printed.mode in ("paper", "reduced"), claim.text


def test_what_did_not_come_out_has_a_cause_that_names_a_run():
    for record in EXPERIMENTS.values():
        if record.mode not in ("paper", "reduced"):
            continue
        for verdict in assess(record, RESULTS, "full").verdicts:
            if verdict.outcome == "reproduced" or verdict.claim.mode:
                continue
            named = re.findall(r"`([^`]+)`", verdict.claim.cause)
            assert named, f"{record.id}: {verdict.claim.text}"
            assert set(named) <= set(EXPERIMENTS), named


@pytest.fixture
def quoting(tmp_path):
    paper = experiment(tmp_path)
    fill(paper, tmp_path, lambda row, method, seed: 0.5 + 0.1 * (method == "a") + 0.01 * seed)
    return Quoting(lambda name: load(paper, tmp_path, "full"))


@pytest.mark.parametrize(
    ("quotation", "shown"),
    [
        ("someone/table7 easy/a accuracy", "61.00 ± 2.48"),
        ("someone/table7 a accuracy", "61.00 ± 2.48"),
        ("difference someone/table7 easy/a easy/b accuracy", "+10.00 ± 0.00"),
        ("diverged someone/table7 easy/a accuracy", "0 of 3"),
        ("after 50 someone/table7 easy/a accuracy", "30.5"),
        ("together someone/table7 easy/a easy/b accuracy", "61.0"),
    ],
)
def test_quotations_are_looked_up(quoting, quotation, shown):
    assert quoting.filled(f"It is {{{{{quotation}}}}}.") == f"It is {shown}."


def test_in_smaller_runs_what_is_not_there_is_left_open(tmp_path):
    paper = experiment(tmp_path)
    fill(paper, tmp_path, lambda row, method, seed: 0.5, "tiny")
    quoting = Quoting(lambda name: load(paper, tmp_path, "tiny"), smaller=True)
    assert quoting.filled("{{x/y hard/a accuracy}} {{after 50 x/y a accuracy}}") == "· ·"


def test_diverged_runs_are_counted_and_left_out(tmp_path):
    paper = experiment(tmp_path)
    for unit in paper.units("full"):
        write(tmp_path, unit, {"accuracy": float("nan") if unit.seeds == (1,) else 0.5})
    quoting = Quoting(lambda name: load(paper, tmp_path, "full"))
    assert quoting.filled("{{diverged x/y a accuracy}}, {{x/y a accuracy}}") == "1 of 3, 50.00 ± 0.00"


@pytest.mark.parametrize(
    "quotation", ["someone/table7 easy/c accuracy", "someone/table7 easy/a", "after 7 x/y a accuracy"]
)
def test_a_quotation_of_nothing_is_an_error_that_shows_it(quoting, quotation):
    with pytest.raises(UsageError, match="cannot be looked up"):
        quoting.filled(f"{{{{{quotation}}}}}")
