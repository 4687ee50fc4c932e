import numpy as np

from headstart.algorithms import LocalOnly
from headstart.simulate import Evaluation, train
from tests import toy

ALONE = LocalOnly(learning_rate=0.3, own_steps=20)


def test_a_clients_model_is_gradient_descent_on_its_own_data(x64):
    result = train(ALONE, toy.LOGISTIC, toy.federation(), rounds=2, evaluation=Evaluation(every=2))
    (x, y), _ = toy.client_arrays()[2]
    features, w = np.column_stack([x, np.ones(len(x))]), toy.flat(toy.start())
    for _ in range(20):
        w = w + 0.3 * features.T @ (y / (1 + np.exp(y * (features @ w)))) / len(y)
    np.testing.assert_allclose(toy.flat(result.personalize(2)), w, rtol=1e-8)


def test_nothing_is_shared():
    result = train(ALONE, toy.LOGISTIC, toy.federation(), rounds=2, evaluation=Evaluation(every=2, steps=(0, 1, 5)))
    toy.assert_same_bits(result.params, toy.start())
    toy.assert_same_bits(result.personalize(0, steps=0), toy.start())
    assert result.final("loss", 1)["mean"] == result.final("loss", 5)["mean"]
    assert result.history["bytes_up"].to_pylist() == [0, 0]
