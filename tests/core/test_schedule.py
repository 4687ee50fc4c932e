import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import Diminishing, StepDecay, check_step_size, step_size_at
from headstart.errors import UsageError


def over_rounds(schedule, rounds):
    return jax.vmap(schedule)(jnp.arange(rounds))


def test_step_decay_drops_at_its_milestones():
    sizes = over_rounds(StepDecay(initial=0.8, milestones=(2, 4), factor=0.5), 6)
    np.testing.assert_allclose(sizes, [0.8, 0.8, 0.4, 0.4, 0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(over_rounds(StepDecay(0.8, ()), 2), [0.8, 0.8], rtol=1e-6)


def test_diminishing_is_one_over_root_tau_k():
    sizes = over_rounds(Diminishing(initial=0.6, local_steps=4), 9)
    np.testing.assert_allclose(sizes, 0.6 / np.sqrt(4 * np.arange(1, 10)), rtol=1e-6)


def test_a_constant_is_its_own_schedule():
    assert step_size_at(0.1, 7) == 0.1


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: StepDecay(0.1, (4, 2)), "milestones = .4, 2. do not increase.*increasing order"),
        (lambda: StepDecay(0.1, (2, 2)), "do not increase"),
        (lambda: StepDecay(-0.1, (2,)), "initial = -0.1"),
        (lambda: StepDecay(0.1, (2,), factor=0), "factor = 0"),
        (lambda: Diminishing(0.1, 0), "local_steps = 0"),
        (lambda: Diminishing(0, 1), "initial = 0"),
        (lambda: check_step_size("outer_lr", -1.0), "outer_lr = -1.0 is below 0"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
