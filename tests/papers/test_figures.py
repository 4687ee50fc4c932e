"""What is drawn is what was found; the pictures themselves are looked at by people."""

import math

import matplotlib
import numpy as np
import pytest

from headstart.report.canvas import pyplot
from headstart_papers import figures
from headstart_papers.results import load
from tests.papers.made_up import experiment, fill, write

FIGURE = '[[figures]]\nkind = "{}"\ntitle = "A picture"\n{}\n'
X = [-1.0, 0.0, 1.0]
FITS = {"x": X, "amplitude": [2.0, 1.0], "phase": [0.0, 0.5], "curves": [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]}


@pytest.fixture
def kept(monkeypatch):
    """Pictures stay open, to be looked into."""
    monkeypatch.setattr(pyplot(), "close", lambda picture: None)
    yield lambda: pyplot().gcf()
    matplotlib.pyplot.switch_backend("Agg")  # closes them


def values(row, method, seed):
    return 0.5 + 0.1 * seed + (0.2 if method == "a" else 0.0)


def drawn(tmp_path, kind, settings, values=values, **more):
    paper = experiment(tmp_path, rest=FIGURE.format(kind, settings))
    fill(paper, tmp_path, values, **more)
    return figures.draw(paper, load(paper, tmp_path, "full"), tmp_path)


def lines(axis):
    return {line.get_label(): line for line in axis.get_lines()}


def legend(picture):
    return [text.get_text() for text in picture.legends[0].get_texts()]


def test_curves_are_means_over_seeds_with_the_papers_values_at_their_end(tmp_path, kept):
    found = drawn(tmp_path, "curves", 'score = "accuracy"\nlike = "Figure 2"')
    assert [drawing.path for drawing in found] == [tmp_path / "figure1.png"]
    assert found[0].path.read_bytes()[:4] == b"\x89PNG"
    picture = kept()
    easy, hard = picture.axes
    assert (easy.get_title(), hard.get_title()) == ("Easy setting", "Hard setting")
    np.testing.assert_allclose(lines(easy)["Method A"].get_xydata(), [[0, 0], [50, 40], [100, 80]])
    np.testing.assert_allclose(lines(hard)["Method B"].get_xydata(), [[0, 0], [100, 30], [200, 60]])
    marks = [line.get_xydata().tolist() for line in easy.get_lines() if line.get_label() == "the paper's value"]
    assert marks == [[[100, 80]], [[100, 70]]]
    assert len(easy.collections) == 2  # the intervals
    assert legend(picture) == ["Method A", "Method B", "the paper's value"]
    assert picture.get_suptitle() == "A picture (like the paper's Figure\N{NO-BREAK SPACE}2)"


def test_two_seeds_have_no_band(tmp_path, kept):
    paper = experiment(tmp_path, rest=FIGURE.format("curves", 'score = "accuracy"'))
    fill(paper, tmp_path, values, profile="quick")
    figures.draw(paper, load(paper, tmp_path, "quick"), tmp_path)
    assert [len(axis.collections) for axis in kept().axes] == [0, 0]


@pytest.mark.parametrize(("x", "end"), [("samples", 100), ("seconds", 12)])
def test_other_axes(tmp_path, kept, x, end):
    drawn(tmp_path, "curves", f'score = "loss"\nx = "{x}"\nrows = ["hard"]\nmethods = ["b"]\nlog = true\nlog_x = true')
    (axis,) = kept().axes
    assert list(lines(axis)) == ["Method B"]
    np.testing.assert_allclose(lines(axis)["Method B"].get_xdata(), [end / 2, end])  # no logarithm of zero
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")


def test_a_sweep_has_a_panel_a_method(tmp_path, kept):
    drawn(tmp_path, "sweep", 'score = "accuracy"\nmethods = ["b"]')
    (axis,) = kept().axes
    assert axis.get_title() == "Method B"
    assert {"Easy setting", "Hard setting"} < lines(axis).keys()


def test_fits_are_those_of_the_chosen_point(tmp_path, kept):
    drawn(tmp_path, "fits", 'rows = ["easy"]', extras={"fits": FITS})
    first, second = kept().axes
    np.testing.assert_allclose(lines(first)["the task's function"].get_ydata(), 2 * np.sin(X))
    np.testing.assert_allclose(lines(second)["the task's function"].get_ydata(), np.sin(np.array(X) + 0.5))
    np.testing.assert_allclose(lines(second)["Method A"].get_ydata(), [3, 4, 5])


def test_where_a_run_diverged_is_marked(tmp_path, kept):
    paper = experiment(tmp_path, rest=FIGURE.format("curves", 'score = "loss"'))
    for unit in paper.units("full"):
        curve = [1.0, math.nan if unit.seeds == (1,) else 2.0, math.nan]
        write(tmp_path, unit, {"loss": math.nan}, curves={"loss": [[curve if unit.method == "a" else [math.nan] * 3]]})
    figures.draw(paper, load(paper, tmp_path, "full"), tmp_path)
    marks = [line.get_xydata().tolist() for line in kept().axes[0].get_lines() if line.get_label() == "diverged"]
    assert marks[0] == [[0, 1]]
    assert len(marks) == 2
    assert legend(kept())[-1] == "diverged"


def test_one_seed_has_no_interval(tmp_path, kept):
    paper = experiment(tmp_path, rest=FIGURE.format("curves", 'score = "accuracy"'))
    write(tmp_path, next(paper.units("full")), {"accuracy": 0.5})
    figures.draw(paper, load(paper, tmp_path, "full"), tmp_path)
    (axis,) = kept().axes
    assert not axis.collections


@pytest.mark.parametrize("kind", ["curves", "sweep", "fits"])
def test_without_results_there_is_no_picture(tmp_path, kind):
    paper = experiment(tmp_path, rest=FIGURE.format(kind, 'score = "accuracy"'))
    assert figures.draw(paper, load(paper, tmp_path, "full"), tmp_path) == []


def test_a_picture_of_a_smaller_run_says_so(tmp_path, kept):
    paper = experiment(tmp_path, rest=FIGURE.format("curves", 'score = "accuracy"'))
    fill(paper, tmp_path, values, "quick")
    figures.draw(paper, load(paper, tmp_path, "quick"), tmp_path)
    assert kept().get_suptitle() == "A picture (quick, smaller run)"
