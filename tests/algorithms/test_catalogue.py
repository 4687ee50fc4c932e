import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms import ALGORITHMS, Aruba, FedProx, MetaFL, PFedMe, Reptile, fedavg, per_fedavg
from headstart.core import FULL, Algorithm, Cost, HessianFree
from headstart.errors import UsageError
from tests import toy
from tests.algorithms.contract import CONTRACT


def test_every_method_has_a_contract_row():
    assert {name.split(",")[0] for name in CONTRACT} == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_builds_with_defaults_and_names_its_paper(name):
    entry = ALGORITHMS[name]
    assert isinstance(entry.build(), Algorithm)
    assert entry.paper[-4:].isdigit() or entry.paper == "baseline"
    assert ">>>" in entry.build.__doc__
    assert "Deviations:" in entry.build.__doc__


def test_full_batches_cost_what_a_client_has():
    cost = Cost(gradients=3, products=0, batches={FULL: 2, 5: 1})
    assert cost.samples(client_samples=7) == 19
    assert cost.largest_batch() == 5
    assert Cost(1, 0, {FULL: 1}).largest_batch() == 1


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: per_fedavg(inner_lr=-0.1), "inner_lr = -0.1 is below 0"),
        (lambda: per_fedavg(inner_lr="0.1"), "inner_lr = '0.1' is not a number"),
        (lambda: per_fedavg(curvature="exactly"), "no curvature 'exactly'.*Did you mean 'exact'"),
        (lambda: fedavg(local_steps=0), "local_steps = 0"),
        (lambda: fedavg(outer_lr=-1.0), "outer_lr = -1.0"),
        (lambda: fedavg(batch_size=0), "batch_size = 0 is not a batch size"),
        (lambda: MetaFL(inner_steps=1.5), "inner_steps = 1.5"),
        (lambda: MetaFL(inner_steps=2, inner_batch_size=(3,)), "inner_batch_size lists 1 sizes for 2"),
        (lambda: FedProx(mu=-1), "mu = -1"),
        (lambda: PFedMe(inner_steps=0), "inner_steps = 0"),
        (lambda: PFedMe(server_mixing=0), "server_mixing = 0"),
        (lambda: Aruba(zeta=0), "zeta = 0"),
        (lambda: Aruba(refinement=-1), "refinement = -1"),
        (lambda: Reptile(batch_size="half"), "batch_size = 'half'"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def grid(algorithm):
    """Three settings of every hyperparameter at once, stacked as a grid search has them."""
    settings = [jax.tree.map(lambda leaf, s=scale: jnp.asarray(leaf * s), algorithm) for scale in (0.5, 1.0, 1.5)]
    return settings, jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "name", ["per-fedavg, hessian-free", "meta-fl, exact", "pfedme", "aruba", "reptile", "local-scgdm", "local-bsgd"]
)
def test_a_grid_of_hyperparameters_is_one_program(name):
    view = toy.federation().clients.view("train", jnp.asarray(1))

    @eqx.filter_jit
    def one_round(algorithm):
        server = algorithm.init_server(toy.start())
        down = algorithm.broadcast(server, jax.random.key(0))
        up = algorithm.client_update(toy.logistic_loss, down, (), view, jax.random.key(1)).up
        return algorithm.server_update(server, up).params

    settings, stacked = grid(CONTRACT[name])
    together = jax.vmap(one_round)(stacked)
    for i, setting in enumerate(settings):
        toy.assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), one_round(setting), 1e-12)
    assert np.abs(np.diff(np.asarray(together["weight"]), axis=0)).max() > 1e-6


@pytest.mark.usefixtures("x64")
def test_the_step_sizes_of_a_grid_may_vary_alone():
    view = toy.federation().clients.view("train", jnp.asarray(1))

    @jax.jit
    def sent(inner_lr):
        algorithm = per_fedavg(inner_lr=inner_lr, outer_lr=0.3, batch_size=4, curvature=HessianFree(1e-2))
        down = algorithm.broadcast(algorithm.init_server(toy.start()), jax.random.key(0))
        return algorithm.client_update(toy.logistic_loss, down, (), view, jax.random.key(1)).up.moved

    together = jax.vmap(sent)(jnp.asarray([0.1, 0.4]))
    for i, inner_lr in enumerate((0.1, 0.4)):
        toy.assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), sent(inner_lr), 1e-12)
