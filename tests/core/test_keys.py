import itertools

import jax

from headstart.core import Purpose, client_key, episode_key, round_key, run_key


def test_every_seed_purpose_round_and_client_has_a_key_of_its_own():
    keys = [
        client_key(round_key(run_key(seed, purpose), k), client)
        for seed, purpose, k, client in itertools.product((0, 1), Purpose, (0, 1), (0, 1))
    ]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)


def test_the_purposes_numbers_are_part_of_a_runs_identity():
    first = ["INIT", "COHORT", "CLIENT", "SERVER", "EVALUATE", "DATA"]
    assert [Purpose[name].value for name in first] == list(range(6))
    assert [int(p) for p in sorted(Purpose)] == list(range(len(Purpose)))


def test_the_key_of_a_task_is_none_of_a_steps_or_a_batchs():
    """``split`` gives what ``fold_in`` gives, so a small number would be a batch's key, or another step's."""
    key = jax.random.key(3)
    steps = jax.vmap(lambda t: jax.random.fold_in(key, t))(jax.numpy.arange(2000))
    others = jax.random.key_data(jax.numpy.concatenate([steps, jax.random.split(key, 8)])).tolist()
    assert jax.random.key_data(episode_key(key)).tolist() not in others
