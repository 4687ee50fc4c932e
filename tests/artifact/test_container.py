"""A file from anywhere is refused with a word or predicts the same, whatever was done to its bytes."""

import json

import numpy as np
import pytest

import headstart as hs
from headstart.artifact.container import read_container, write_container

MUTATIONS = 300


def mutated(rng, content):
    """The bytes with some flipped, cut, added, doubled or moved."""
    content = bytearray(content)
    kind = rng.integers(6)
    # Half of all changes are in the header, which is the part that is read.
    where = int(rng.integers(len(content) if rng.random() < 0.5 else min(len(content), 3000)))
    if kind == 0:
        content[where] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        content = content[:where]
    elif kind == 2:
        content[where:where] = rng.bytes(int(rng.integers(1, 20)))
    elif kind == 3:
        content[where : where + 4] = rng.bytes(4)
    elif kind == 4:
        del content[where : where + int(rng.integers(1, 20))]
    else:
        content += rng.bytes(int(rng.integers(1, 100)))
    return bytes(content)


def test_random_mutations_are_refused_or_harmless(model, path, frame, tmp_path):
    rng, whole = np.random.default_rng(0), path.read_bytes()
    rows, refused = frame.iloc[:5], []
    wanted = model.predict_proba(rows)
    changed = tmp_path / "changed.safetensors"
    for _ in range(MUTATIONS):
        changed.write_bytes(mutated(rng, whole))
        try:
            found = hs.load(changed)
        except hs.UsageError as error:
            refused.append(str(error))
        else:
            np.testing.assert_array_equal(found.predict_proba(rows), wanted)
    assert len(refused) > 0.9 * MUTATIONS
    assert all(str(changed) in said for said in refused)


def rewritten(path, out, change):
    """A file whose description was changed by someone who knows how to make the digest fit."""
    arrays, description, _ = read_container(path)
    write_container(out, arrays, change(json.loads(json.dumps(description))))
    return out


def setting(*place, value):
    def change(description):
        table = description
        for name in place[:-1]:
            table = table[name]
        table[place[-1]] = value
        return description

    return change


@pytest.mark.parametrize(
    "change",
    [
        setting("format", value=99),
        setting("architecture", "settings", "hidden", value=[10**12]),
        setting("architecture", "settings", "hidden", value=[6] * 10**4),
        setting("architecture", "settings", "hidden", value=[7]),
        setting("architecture", "settings", "activation", value="os.system"),
        setting("architecture", "name", value="resnet"),
        setting("inputs", value={"kind": "array", "shape": [10**9, 10**9], "dtype": "float32"}),
        setting("inputs", "encoding", "columns", value=[]),
        setting("inputs", "encoding", "columns", 0, "center", value="x"),
        setting("inputs", "encoding", "columns", 2, "known", value=["nothing of the kind"]),
        setting("inputs", "encoding", value=7),
        setting("target", "classes", value=["one"]),
        setting("target", "scale", value=0.0),
        setting("adaptation", "algorithm", value="Exploit"),
        setting("adaptation", "steps", value=10**12),
        setting("adaptation", "settings", "local_steps", value=10**12),
        setting("scores", value=7),
        setting("source", value=[]),
        setting("problem", "kind", value="witchcraft"),
    ],
    ids=lambda change: "-".join(map(str, change.__closure__[0].cell_contents)),
)
def test_descriptions_that_do_not_fit_are_refused(path, tmp_path, change):
    out = rewritten(path, tmp_path / "forged.safetensors", change)
    with pytest.raises(hs.UsageError, match="forged"):
        hs.load(out)


def test_code_that_a_file_names_is_not_imported(path, tmp_path):
    forged = {
        "name": "EquinoxModel",
        "settings": {"build": {"import": "antigravity.geohash"}},
        "imports": ["antigravity"],
    }
    out = rewritten(path, tmp_path / "forged.safetensors", setting("architecture", value=forged))
    import sys

    with pytest.raises(hs.UsageError, match="trust=True"):
        hs.load(out)
    assert "antigravity" not in sys.modules
    assert "antigravity" in hs.artifact.read_card(out)


def test_headers_are_checked_before_anything_is_read(path, tmp_path):
    out = tmp_path / "long.safetensors"
    out.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(hs.UsageError, match="header is longer"):
        hs.load(out)
    tensor = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    header = json.dumps({"__metadata__": {"headstart": "{}", "digest": ""}, "w": tensor}).encode()
    out.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(hs.UsageError, match="bytes and the file has 0"):
        hs.load(out)
    out.write_bytes(len(b"[" * 10**6).to_bytes(8, "little") + b"[" * 10**6)
    with pytest.raises(hs.UsageError, match="cannot be read"):
        hs.load(out)


def test_every_type_of_number_comes_back(tmp_path):
    import jax.numpy as jnp

    arrays = {
        "bits": np.asarray(jnp.arange(5, dtype=jnp.bfloat16)),
        "double": np.linspace(0, 1, 7).reshape(7, 1),
        "scalar": np.float32(3.5).reshape(()),
        "none": np.zeros((0, 3), np.int32),
    }
    write_container(tmp_path / "a.safetensors", arrays, {"format": 1})
    found, description, _ = read_container(tmp_path / "a.safetensors")
    assert description == {"format": 1}
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
