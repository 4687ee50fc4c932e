import jax.numpy as jnp
import numpy as np
import pytest

from headstart.simulate.progress import Look, Progress
from headstart.simulate.rounds import RunState


def _state(shape=(2, 3), fill=0.0):
    return RunState(server={"weights": jnp.full(shape, fill)}, clients={"visits": jnp.zeros((2, 4), jnp.int32)})


@pytest.fixture
def path(tmp_path):
    """The checkpoint of two runs after 8 rounds."""
    progress = Progress(_state(), tmp_path / "unit.safetensors", 0.0)
    progress.done, progress.seconds = 8, 1.5
    progress.losses = [np.ones((2, 5)), np.zeros((2, 3))]
    progress.looks = [Look(r, r / 10, {"accuracy": np.full((2, 1, 4), r)}, {"norm": np.full(2, -r)}) for r in (0, 8)]
    progress.keep(_state(fill=7.0))
    return tmp_path / "unit.safetensors"


def test_a_checkpoint_gives_back_all_of_it(path):
    progress = Progress(_state(), path, 30.0)
    assert (progress.done, progress.seconds) == (8, 1.5)
    np.testing.assert_array_equal(progress.state.server["weights"], np.full((2, 3), 7.0))
    assert [loss.shape for loss in progress.losses] == [(2, 8)]
    assert [look.round for look in progress.looks] == [0, 8]
    np.testing.assert_array_equal(progress.looks[1].values["accuracy"], np.full((2, 1, 4), 8))
    np.testing.assert_array_equal(progress.looks[1].measured["norm"], [-8, -8])


@pytest.mark.parametrize(
    "template",
    [
        _state(shape=(3, 2)),
        RunState(server=_state().server, clients=(*_state().clients.values(), jnp.zeros(2))),
        RunState(server=_state().server, clients=None),
    ],
    ids=["other shapes", "more arrays", "fewer arrays"],
)
def test_a_checkpoint_of_another_version_is_not_taken_up(path, template):
    progress = Progress(template, path, 30.0)
    assert progress.done == 0
    assert not progress.looks
    assert progress.state is template


def test_nothing_is_left_of_a_sweep_that_is_done(path):
    Progress(_state(), path, 30.0).forget()
    assert not path.exists()
