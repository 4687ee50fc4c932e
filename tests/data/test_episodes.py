import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart.data.episodes import Episodes
from headstart.data.federation import Federation
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError
from headstart.simulate import Evaluation, train

EACH, SIDE = 8, 3


def characters(alphabets=4, letters=6, each=EACH):
    """Images whose corner says which class and which sample they are; every alphabet has so many letters."""
    classes = alphabets * letters
    y = np.repeat(np.arange(classes), each)
    x = np.zeros((len(y), SIDE, SIDE), np.uint8)
    x[:, 0, 0], x[:, 0, 1] = y + 1, np.tile(np.arange(each), classes) + 1
    return Samples("toy", x, y, tuple(map(str, range(classes))), columns={"alphabet": y // letters}, transform=as_is)


def as_is(batch):
    return batch


def clients(samples, episodes, held_out=0):
    rows = RowLists.by_owner(samples.columns["alphabet"], samples.columns["alphabet"].max() + 1)
    return Federation.from_episodes(samples, rows, episodes, held_out=held_out)


def parts(batch):
    """Class, sample and label of every image, after turning it back; a turn is seen where the corner went."""
    x = np.asarray(batch.x)
    for _ in range(4):
        turned = (x[:, 0, 0] == 0) | (x[:, 0, 1] == 0)
        x = np.where(turned[:, None, None], np.rot90(x, -1, axes=(1, 2)), x)
    return x[:, 0, 0] - 1, x[:, 0, 1] - 1, np.asarray(batch.y)


def sides(view, key, size):
    episode = view.episode(jax.random.key(key))
    return [parts(side.sample(jax.random.key(key + 1), size)) for side in episode]


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 4), st.booleans(), st.integers(0, 3), st.integers(0, 99))
def test_an_episode_has_its_ways_and_shots_and_keeps_its_sides_apart(ways, shots, queries, rotations, client, key):
    federation = clients(characters(), Episodes(ways, shots, queries, rotations))
    view = federation.clients.view("train", jnp.asarray(client))
    support, query = sides(view, key, "full")
    for (classes, _, labels), number in ((support, shots), (query, queries)):
        assert np.bincount(labels).tolist() == [number] * ways
        assert set(classes // 6) == {client}
    own = {label: cls for cls, label in zip(support[0], support[2], strict=True)}
    assert all(own[label] == cls for cls, label in zip(query[0], query[2], strict=True))
    if not rotations:  # with them a class may be in an episode twice, turned differently
        assert len(set(own.values())) == ways
    seen = [set(zip(labels.tolist(), which.tolist(), strict=True)) for _, which, labels in (support, query)]
    assert not seen[0] & seen[1]
    assert (len(seen[0]), len(seen[1])) == (ways * shots, ways * queries)


def test_every_local_step_meets_another_task_but_an_evaluation_always_the_same():
    federation = clients(characters(), Episodes(3, 2, 2))
    view = federation.clients.view("train", jnp.asarray(1))
    drawn = {tuple(sides(view, key, "full")[0][0][::2]) for key in range(30)}
    assert len(drawn) > 15
    one, two = (federation.clients.view("support", jnp.asarray(1)).sample(jax.random.key(k), "full") for k in (0, 1))
    np.testing.assert_array_equal(one.x, two.x)
    query = parts(federation.clients.view("query", jnp.asarray(1)).sample(jax.random.key(0), "full"))
    assert dict(zip(query[2], query[0], strict=True)) == dict(zip(*parts(one)[::-2], strict=True))


def test_all_classes_and_samples_are_drawn_equally_often():
    federation = clients(characters(alphabets=1), Episodes(2, 1, 1))
    view = federation.clients.view("train", jnp.asarray(0))

    @jax.jit
    @jax.vmap
    def draw(key):
        return view.episode(key).inner.sample(key, "full").x[:, 0, :2]

    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 3000))).reshape(-1, 2)
    for column, number in ((0, 6), (1, EACH)):
        counts = np.bincount(drawn[:, column])[1:]
        expected = len(drawn) / number
        assert len(counts) == number
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_turned_classes_are_classes_of_their_own():
    federation = clients(characters(alphabets=1, letters=2), Episodes(8, 1, 1, rotations=True))
    support = federation.clients.view("support", jnp.asarray(0)).sample(jax.random.key(0), "full")
    corners = {
        (int(np.asarray(image)[np.asarray(image) > 0].max()), np.asarray(image).tobytes()) for image in support.x
    }
    assert len(corners) == 8
    assert sorted(parts(support)[0].tolist()) == [0] * 4 + [1] * 4


def test_a_client_with_as_many_classes_as_ways_is_one_task():
    view = clients(characters(letters=3), Episodes(3, 2, 2)).clients.view("train", jnp.asarray(2))
    for key in range(5):
        classes, _, labels = sides(view, key, "full")[0]
        np.testing.assert_array_equal(classes, 6 + labels)


def test_part_of_a_side_holds_equally_many_of_each_class():
    view = clients(characters(), Episodes(3, 4, 4)).clients.view("train", jnp.asarray(0))
    for classes, which, labels in sides(view, 0, 6):
        assert np.bincount(labels).tolist() == [2, 2, 2]
        assert len(set(zip(classes, which, strict=True))) == 6
    assert parts(view.sample(jax.random.key(0), 9))[2].tolist() == [0] * 3 + [1] * 3 + [2] * 3


@pytest.mark.parametrize("size", [4, 15])
def test_sizes_that_do_not_fit_the_classes_are_refused(size):
    view = clients(characters(), Episodes(3, 4, 4)).clients.view("train", jnp.asarray(0))
    with pytest.raises(UsageError, match=rf"(?s)batch of {size} .* 3 classes.*multiple of 3 up to 12"):
        sides(view, 0, size)


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        (lambda: Episodes(7, 1, 1), "Client 0 has 6 classes, too few for 7 ways"),
        (lambda: Episodes(2, 4, 5), "Client 0 has 8 samples of class 0, fewer than 4 shots and 5 queries"),
        (lambda: Episodes(1, 1), "ways = 1"),
    ],
)
def test_refusals(episodes, words):
    with pytest.raises(UsageError, match=words):
        clients(characters(), episodes())


def test_methods_train_on_episodes_and_are_judged_by_tasks():
    federation = clients(characters(), Episodes(3, 2, 4), held_out=1)
    problem = hs.Classification(hs.MLP(inputs=(SIDE, SIDE), outputs=3, hidden=(4,)))
    for algorithm in (
        hs.per_fedavg(batch_size=12, inner_batch_size=6, curvature_batch_size=6, local_steps=2),
        hs.LocalSCGDM(batch_size=12, inner_batch_size=6, local_steps=2),
        hs.Reptile(batch_size=6, local_steps=2),
    ):
        result = train(algorithm, problem, federation, rounds=2, evaluation=Evaluation(steps=(0, 1)))
        assert result.table.num_rows == 3 * 2 * 4
        assert np.isfinite(result.history["loss"].to_numpy()).all()


def test_the_model_has_as_many_outputs_as_ways():
    assert clients(characters(), Episodes(3, 2, 4)).task.outputs == 3
