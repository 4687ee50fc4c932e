"""Files that are either whole or not there."""

import jax
import jax.numpy as jnp
import pytest

import headstart as hs
from headstart.simulate.files import read_tree, write_tree


def test_arrays_come_back_as_they_were(tmp_path):
    tree = {"a": jnp.arange(3, dtype=jnp.int32), "b": (jnp.float32(0.1), jnp.ones((2, 2), jnp.bfloat16)), "none": None}
    write_tree(tmp_path / "t.safetensors", tree, {"round": "7"})
    back, metadata = read_tree(tmp_path / "t.safetensors", jax.tree.map(jnp.zeros_like, tree))
    assert metadata["round"] == "7"
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"a": jnp.zeros(4)}, "wants float32"),
        ({"b": jnp.zeros(3)}, "other arrays"),
        ({"a": jnp.zeros(3, int)}, "int32"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, template, words):
    write_tree(tmp_path / "t.safetensors", {"a": jnp.zeros(3)}, {})
    with pytest.raises(hs.UsageError, match=words):
        read_tree(tmp_path / "t.safetensors", template)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    path = tmp_path / "t.safetensors"
    write_tree(path, {"a": jnp.zeros(3)}, {})
    before = path.read_bytes()
    monkeypatch.setattr("headstart.simulate.files.save_file", disk_full)
    with pytest.raises(hs.UsageError, match="No space"):
        write_tree(path, {"a": jnp.ones(3)}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
