import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli.main import app
from headstart.errors import UsageError
from headstart_papers import reproduce
from headstart_papers.reading import find_experiments
from headstart_papers.report import docs_pages
from headstart_papers.store import Store

RUNNER = CliRunner()


def invoke(*arguments):
    return RUNNER.invoke(app, ["reproduce", *arguments])


def test_lists_every_experiment():
    listed = invoke("--list")
    assert listed.exit_code == 0
    for experiment in find_experiments():
        assert experiment.id in listed.output


def test_unknown_experiments_are_named():
    error = invoke("wang/table33").exception
    assert isinstance(error, UsageError)
    assert "There is no experiment 'wang/table33'" in str(error)
    assert "wang/table3" in str(error)


def test_reports_of_nothing_say_so(tmp_path):
    done = invoke("gao/figure5", "--report-only", "--out", str(tmp_path), "--docs", str(tmp_path / "page.md"))
    assert done.exit_code == 0, done.output
    assert "undecided" in done.output
    assert "not run yet" in (tmp_path / "gao" / "figure5" / "report.md").read_text()
    assert (tmp_path / "page.md").exists()


def test_two_processes_do_not_share_a_folder(tmp_path):
    from filelock import FileLock

    with FileLock(tmp_path / ".lock"):
        error = invoke("gao/figure5", "--out", str(tmp_path)).exception
    assert isinstance(error, UsageError)
    assert "Another process is at work" in str(error)


@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_numbers_are_checked(option, tmp_path):
    error = invoke("gao/figure5", option, "0", "--out", str(tmp_path)).exception
    assert isinstance(error, UsageError)
    assert option in str(error)


def test_missing_data_is_said_once_and_the_rest_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_OFFLINE", "1")
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    done = invoke(
        "jamali/figure1", "--quick", "--seeds", "1", "--jobs", "1", "--data", str(tmp_path / "data"),
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert done.exit_code == 1
    assert done.output.count("Not run:") == 1, "the other units of the experiment would lack the same data"
    assert "cifar10" in done.output.lower()
    assert "Traceback" not in done.output
    (experiment,) = find_experiments(("jamali/figure1",))
    assert all(Store(tmp_path / "out").read(unit) is None for unit in experiment.units("quick", 1))


def test_without_the_papers_package_it_says_what_to_do(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "headstart_papers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not Path(path, "headstart_papers").exists()])
    error = invoke("--list").exception
    assert isinstance(error, UsageError)
    assert "no package headstart_papers" in str(error)
    assert "pip install" in str(error)


def test_the_same_from_python(tmp_path):
    done = reproduce("gao/figure5", out=tmp_path, report_only=True)
    (assessment,) = done.assessments
    assert assessment.experiment.id == "gao/figure5"
    assert (done.failures, done.report) == ((), tmp_path / "report.md")


def test_pages_are_computed_again(tmp_path):
    page = tmp_path / "page.md"
    places = ("--out", str(tmp_path / "results"), "--docs", str(page))
    (tmp_path / "results").mkdir()
    assert isinstance(invoke("--check", *places).exception, UsageError)
    for path, text in docs_pages(find_experiments(), tmp_path / "results", "full", page, drawing=False):
        path.write_text(text)
    done = invoke("--check", *places)
    assert done.exit_code == 0, done.output
    assert "Every number on the pages is that of the results." in done.output
    page.write_text(page.read_text().replace("20 minutes", "21 minutes"))
    done = invoke("--check", *places)
    assert done.exit_code == 1
    assert "Differs:" in done.output
    assert "Pages that differ: 1." in done.output
