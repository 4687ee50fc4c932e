import pytest

from headstart.errors import UsageError
from headstart.theory.constants import Constants

SOME = {
    "smoothness": 1.0,
    "hessian_lipschitz": 0.0,
    "gradient_bound": 2.0,
    "gradient_noise": 0.5,
    "hessian_noise": 0.1,
    "gradient_dissimilarity": 0.0,
    "hessian_dissimilarity": 0.0,
}


def test_fourth_moments_are_asked_for_only_when_needed():
    with pytest.raises(UsageError, match="Lemma 6 needs the fourth moments"):
        Constants(**SOME).fourth_moments("Lemma 6")
    assert Constants(**SOME, gradient_fourth_moment=3.0, hessian_fourth_moment=1.0).fourth_moments("it") == (3.0, 1.0)


@pytest.mark.parametrize("name", [*SOME, "gradient_fourth_moment"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), "2"])
def test_bad_values_are_named(name, value):
    with pytest.raises(UsageError, match=f"{name} = "):
        Constants(**{**SOME, name: value})
