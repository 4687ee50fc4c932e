import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import checks
from headstart.errors import UsageError


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: checks.at_least("inner_lr", -0.1, 0), "inner_lr = -0.1 is below 0.*0 or more"),
        (lambda: checks.at_least("inner_lr", float("nan"), 0), "not a finite number.*finite value"),
        (lambda: checks.at_least("inner_lr", "0.1", 0), "inner_lr = '0.1' is not a number.*a number"),
        (lambda: checks.at_least("inner_lr", None, 0), "inner_lr = None is not a number"),
        (lambda: checks.at_least("inner_lr", True, 0), "inner_lr = True is not a number"),
        (lambda: checks.positive("radius", 0), "radius = 0 is not above 0.*above 0"),
        (lambda: checks.in_unit_interval("cohort", 1.5), r"cohort = 1.5 lies outside \(0, 1\].*at most 1"),
        (lambda: checks.in_unit_interval("cohort", np.float32(0)), "outside"),
        (lambda: checks.whole("rounds", 2.0, 1), "rounds = 2.0 is not a whole number of 1 or more.*Set rounds"),
        (lambda: checks.whole("rounds", True, 1), "rounds = True"),
        (lambda: checks.whole("rounds", 0, 1), "rounds = 0"),
    ],
)
def test_refusals_name_the_field_and_the_remedy(check, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        check()


def test_good_and_traced_values_pass():
    checks.at_least("a", 0, 0)
    checks.positive("a", np.float64(1e-9))
    checks.in_unit_interval("a", 1)
    checks.whole("a", np.int64(3), 1)
    checks.positive("a", jnp.asarray(0.1))
    jax.jit(lambda a: checks.positive("a", a))(-1.0)
