"""Numbers have as many digits as they deserve."""

import pytest

from headstart_papers.numbers import as_reported, clock, p_value, with_interval
from headstart_papers.record import Score

PERCENT = Score("a", "Accuracy", "accuracy", percent=True)
PLAIN = Score("l", "Loss", "loss")


@pytest.mark.parametrize(
    ("mean", "half_width", "shown"),
    [
        (0.2914, 0.0123, "0.291 ± 0.012"),
        (1.21249, None, "1.212"),
        (17.524, 1.306, "17.52 ± 1.31"),
        (0.09999999, None, "0.100"),
        (0.0123456, None, "0.0123"),
        (0.000123456, None, "0.000123"),
        (1234.5, None, "1234"),
        (0.0, None, "0.000"),
        (1485040000003.0, 4123132039021.0, "1.49e12 ± 4.12e12"),
        (1.5, 2e7, "1.500 ± 2.00e7"),
    ],
)
def test_losses(mean, half_width, shown):
    assert with_interval(mean, half_width, PLAIN) == shown


def test_percents_have_two_digits():
    assert with_interval(78.0, 0.02, PERCENT) == as_reported(78.0, 0.02, PERCENT) == "78.00 ± 0.02"


def test_a_paper_is_given_no_digits_that_it_does_not_give():
    assert as_reported(17.5, None, PLAIN) == "17.5"
    assert as_reported(1.3, 0.104, PLAIN) == "1.300 ± 0.104"
    assert as_reported(0.361, 0.01, PLAIN) == "0.361 ± 0.010"


@pytest.mark.parametrize(("p", "shown"), [(0.00004, "p < 0.001"), (0.0021, "p = 0.002"), (0.21, "p = 0.21")])
def test_p_values(p, shown):
    assert p_value(p) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(45.2, "45 s"), (720, "12 min"), (12000, "3 h 20 min")])
def test_times(seconds, shown):
    assert clock(seconds) == shown
