"""The heat map of a search."""

import numpy as np
import pytest

from headstart.report.tuning import _edges


@pytest.mark.parametrize(
    ("values", "log", "edges"),
    [
        ([0.01, 0.1, 1.0], True, [10**-2.5, 10**-1.5, 10**-0.5, 10**0.5]),
        ([1, 2, 4], False, [0.5, 1.5, 3, 5]),
        ([3], False, [2.5, 3.5]),
    ],
)
def test_cells_meet_in_the_middle_as_the_axis_has_it(values, log, edges):
    np.testing.assert_allclose(_edges(values, log), edges)
