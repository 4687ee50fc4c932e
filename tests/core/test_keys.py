import itertools

import jax

from headstart.core import Purpose, client_key, round_key, run_key


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
