"""Networks of every kind go the whole way without training: into a file, out of it, to a client, to other runtimes."""

import json

import jax
import numpy as np
import pytest

import headstart as hs
from headstart.artifact import Predictor
from headstart.artifact.architecture import architecture_of
from headstart.artifact.description import Description, ProblemKind
from headstart.artifact.inputs import ArrayInputs, TableInputs
from headstart.artifact.rule import AdaptationRule
from headstart.artifact.target import Target
from headstart.data.tables.encoding import CategoryColumn, Encoding, NumberColumn
from tests.artifact.test_architecture import OWN
from tests.artifact.test_exporting import onnx, stablehlo

ENCODING = Encoding(
    (
        NumberColumn("income", center=0.4, scale=0.7, fill=30_000.0, indicated=True, middle=30_000.0, bend=9_000.0),
        NumberColumn("when", offset=1.7e9, center=40.0, scale=0.01),
        NumberColumn("constant", center=7.0, scale=0.0),
        CategoryColumn("colour", ("(missing)", "blue", "red"), known=("(missing)", "red")),
    ),
    limit=8.0,
)
ROWS = {
    "income": [31_000.0, None, 5e9, -1e7, 0.0] * 4,
    "when": [1.7e9 + 3 * i for i in range(20)],
    "constant": [7.0] * 20,
    "colour": ["red", None, "blue", "mauve", "red"] * 4,
}
RULE = AdaptationRule("per-fedavg", "MetaFL", {}, steps=1, lr=0.05)


def predictor(model, inputs, target=None, kind="classification"):
    description = Description(
        ProblemKind(kind), architecture_of(model), inputs, target or Target("y", ("a", "b")), RULE, (), {"method": "x"}
    )
    return Predictor(description, model, model.init(jax.random.key(1)))


def exported(model, path, x, format):
    out = model.export(path, format)
    assert json.loads(path.with_name(path.name + ".json").read_text())["input"]["name"] == "x"
    return np.asarray((stablehlo if format == "stablehlo" else onnx)(out, x))


@pytest.mark.parametrize("format", ["stablehlo", "onnx"])
def test_tables_of_every_column(tmp_path, format):
    """Heavy tails, offsets, constants, missing numbers, categories that are missing, unseen and unknown."""
    model = predictor(
        hs.MLP(6, 1, hidden=(5,)), TableInputs(ENCODING), Target("y", None, mean=2e5, scale=3e4), "regression"
    )
    x = np.array(
        [[np.nan if v is None else v for v in ROWS["income"]], np.array(ROWS["when"]) - 1.7e9, ROWS["constant"],
         [{"red": 2, None: 0, "blue": 1, "mauve": -1}[v] for v in ROWS["colour"]]], np.float32,
    ).T  # fmt: skip
    values = model.predict(ROWS)
    assert np.isfinite(values).all()
    np.testing.assert_allclose(exported(model, tmp_path / "m", x, format)[:, 0], values, rtol=1e-5)


IMAGES = [hs.CNN((8, 8, 1), 2, filters=(2, 3), hidden=7, kernel=3), hs.Conv((8, 8), 2, filters=4, blocks=2)]


@pytest.mark.parametrize("network", IMAGES, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("format", ["stablehlo", pytest.param("onnx", marks=pytest.mark.slow)])
def test_images(network, tmp_path, format):
    shape = network.inputs
    x = np.random.default_rng(0).integers(0, 256, (3, *shape)).astype(np.uint8)
    model = predictor(network, ArrayInputs(shape, "uint8", "unit"))
    np.testing.assert_allclose(exported(model, tmp_path / "m", x, format), model.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("network", OWN, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("format", ["stablehlo", pytest.param("onnx", marks=pytest.mark.slow)])
def test_networks_of_ones_own(network, tmp_path, format):
    path = predictor(network, ArrayInputs((3,), "float32")).save(tmp_path / "shared.safetensors")
    with pytest.raises(hs.UsageError, match="trust=True"):
        hs.load(path)
    shared = hs.load(path, trust=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)).astype(np.float32)
    mine = shared.adapt({"x": x, "y": np.where(x[:, 0] > 0, "a", "b")}, steps=2, lr=0.1)
    assert mine.adaptation.after["loss"] < mine.adaptation.before["loss"]
    again = hs.load(mine.save(tmp_path / "mine.safetensors"), trust=True)
    np.testing.assert_array_equal(again.predict_proba(x), mine.predict_proba(x))
    np.testing.assert_allclose(exported(mine, tmp_path / "m", x, format), mine.predict_proba(x), atol=1e-5)
