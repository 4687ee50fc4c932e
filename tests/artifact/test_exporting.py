"""What is exported predicts alike in the runtimes it is meant for."""

import json

import jax
import numpy as np
import onnxruntime
import pytest

import headstart as hs


def stored(model, frame):
    """Rows as the JSON file beside an export asks for them, made from it alone."""
    return lambda said: np.stack(
        [
            (frame[column["name"]] - column["number less"]).to_numpy(np.float32)
            if "number less" in column
            else np.array(
                [
                    column["position among"].index("(missing)" if value is None or value != value else value)
                    for value in frame[column["name"]]
                ],
                np.float32,
            )
            for column in said["input"]["columns"]
        ],
        axis=1,
    )


def stablehlo(path, x):
    return jax.export.deserialize(bytearray(path.read_bytes())).call(x)


def onnx(path, x):
    (y,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    return y


@pytest.mark.parametrize(("format", "runtime"), [("stablehlo", stablehlo), ("onnx", onnx)])
def test_probabilities_are_alike(model, frame, tmp_path, format, runtime):
    out = model.export(tmp_path / f"model.{format}", format)
    said = json.loads((tmp_path / f"model.{format}.json").read_text())
    x = stored(model, frame)(said)
    for rows in (1, 5, len(frame)):
        np.testing.assert_allclose(runtime(out, x[:rows]), model.predict_proba(frame.iloc[:rows]), atol=1e-5)
    assert said["output"]["classes"] == ["no", "yes"]


@pytest.mark.parametrize(("format", "runtime"), [("stablehlo", stablehlo), ("onnx", onnx)])
def test_values_are_alike(regression, tmp_path, format, runtime):
    model, data = regression
    out = model.export(tmp_path / f"model.{format}", format)
    x = stored(model, data)(json.loads((tmp_path / f"model.{format}.json").read_text()))
    np.testing.assert_allclose(np.asarray(runtime(out, x))[:, 0], model.predict(data), rtol=1e-5)


def test_other_formats_are_refused(model, tmp_path):
    with pytest.raises(hs.UsageError, match="stablehlo"):
        model.export(tmp_path / "model.x", "stablehl")
