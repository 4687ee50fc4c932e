"""The forward pass for other runtimes: StableHLO, which JAX and others run, and ONNX.

Both take stored rows and give probabilities or values in the label's own units. Included are the scaling of numbers
and of pixels, what stands in for missing numbers, and the features of categories. Left out is the reading of a table:
which column is which, texts as numbers of categories, and the offsets of columns that single precision would blur. A
JSON file beside the exported one has all of that.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.artifact.inputs import TableInputs
from headstart.data.tables.encoding import MISSING, NumberColumn
from headstart.errors import UsageError, did_you_mean
from headstart.simulate.files import write_bytes, write_json

if TYPE_CHECKING:
    from headstart.artifact.predictor import Predictor

__all__ = ["Format", "export"]

Format = Literal["stablehlo", "onnx"]
PLATFORMS = ("cpu", "cuda", "tpu")


def export(predictor: "Predictor", path: Path, format: Format) -> Path:
    """Write the forward pass, with any number of rows, and beside it ``path`` + ``.json``."""
    if format not in get_args(Format):
        raise UsageError(f"There is no format {format!r}.", did_you_mean(str(format), get_args(Format)))
    predictor.check_predicts()
    inputs = predictor.description.inputs
    if isinstance(inputs, TableInputs) and inputs.encoding.per_client:
        raise UsageError(
            "The model scales every client's numbers with the client's own mean and deviation.",
            "Adapt it to a client first, and export the client's own model.",
        )
    shape, dtype = inputs.row
    write = _stablehlo if format == "stablehlo" else _onnx
    with predictor.precision():
        write_bytes(path, write(_function(predictor), shape, dtype))
    write_json(path.with_name(path.name + ".json"), _said(predictor, format))
    return path


def _function(predictor: "Predictor") -> Callable[[Array], Array]:
    target, classifies = predictor.description.target, predictor.description.problem.classifies
    table = isinstance(predictor.description.inputs, TableInputs)

    def predict(x: Array) -> Array:
        stored = jnp.where(jnp.isnan(x), MISSING, x) if table else x
        outputs = predictor.forward(predictor.params, stored)
        return outputs if classifies else outputs * target.scale + target.mean

    return predict


def _stablehlo(function: Callable[[Array], Array], shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    from jax import export as jax_export

    (rows,) = jax_export.symbolic_shape("rows")
    exported = jax_export.export(jax.jit(function), platforms=PLATFORMS)(jax.ShapeDtypeStruct((rows, *shape), dtype))
    return bytes(exported.serialize())


def _onnx(function: Callable[[Array], Array], shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    try:
        from jax2onnx import to_onnx
    except ImportError as error:
        raise UsageError("ONNX needs jax2onnx.", "Install it: pip install 'headstart[export]'.") from error
    # It warns of every value whose shape says all that there is to know.
    logging.getLogger("onnx_ir.serde").setLevel(logging.ERROR)
    try:
        model = to_onnx(
            function, [jax.ShapeDtypeStruct(("rows", *shape), dtype)], input_names=["x"], output_names=["y"]
        )
    except (NotImplementedError, TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(
            f"jax2onnx cannot turn this model into ONNX: {' '.join(str(error).split())[:300]}",
            "Export it with format='stablehlo'.",
        ) from error
    return model.SerializeToString()


def _said(predictor: "Predictor", format: Format) -> dict[str, Any]:
    """What the exported function takes and gives."""
    description = predictor.description
    inputs, target = description.inputs, description.target
    shape, dtype = inputs.row
    said: dict[str, Any] = {
        "format": format,
        "input": {"name": "x", "shape": ["rows", *shape], "dtype": str(dtype)},
        "output": {"name": "y", "holds": "probabilities" if description.problem.classifies else "values"},
        "included": "scaling of inputs and targets",
        "model": predictor.digest,
    }
    if target.classes is not None:
        said["output"]["classes"] = list(target.classes)
    if isinstance(inputs, TableInputs):
        said["included"] = "scaling of inputs and targets, missing numbers (NaN), features of categories"
        said["left out"] = "numbers less their offset, texts as positions among their categories (-1 for another)"
        said["input"]["columns"] = [
            {"name": column.name, "number less": column.offset}
            if isinstance(column, NumberColumn)
            else {"name": column.name, "position among": list(column.categories)}
            for column in inputs.encoding.columns
        ]
    return said
