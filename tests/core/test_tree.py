import jax
import jax.numpy as jnp
import numpy as np

from headstart.core import tree

X = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray([[3.0]])}
Y = {"a": jnp.asarray([4.0, -1.0]), "b": jnp.asarray([[2.0]])}


def same(actual, a, b):
    np.testing.assert_allclose(actual["a"], a)
    np.testing.assert_allclose(actual["b"], b)


def test_vector_space():
    same(tree.add(X, Y), [5, 1], [[5]])
    same(tree.sub(X, Y), [-3, 3], [[1]])
    same(tree.scale(2.0, X), [2, 4], [[6]])
    same(tree.add_scaled(X, -0.5, Y), [-1, 2.5], [[2]])
    same(tree.zeros_like(X), [0, 0], [[0]])


def test_inner_product_and_norm_run_over_all_leaves():
    assert float(tree.vdot(X, Y)) == 4 - 2 + 6
    assert float(tree.norm(X)) == np.sqrt(np.float32(14))


def test_weighted_mean_is_over_the_leading_axis():
    stacked = {"a": jnp.asarray([[1.0, 2.0], [3.0, 6.0]])}
    np.testing.assert_allclose(tree.weighted_mean(jnp.asarray([1.0, 3.0]), stacked)["a"], [2.5, 5.0])
    np.testing.assert_allclose(tree.weighted_sum(jnp.asarray([1.0, 3.0]), stacked)["a"], [10.0, 20.0])


def test_nbytes_are_the_same_inside_and_outside_a_program():
    message = (X, jnp.zeros(3, jnp.int8), None, 0.1, 2)
    want = 4 * 3 + 3 + 4 + 4
    assert tree.nbytes(message) == want
    inside = []
    jax.jit(lambda *leaves: inside.append(tree.nbytes(leaves)))(*message)
    assert inside == [want]
    assert tree.nbytes(jax.eval_shape(lambda: message)) == want
