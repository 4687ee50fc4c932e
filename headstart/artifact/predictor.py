"""A trained model that can be used: it predicts, adapts to a new client, describes itself, and goes into a file."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.artifact.adapting import AdaptationReport, adapt
from headstart.artifact.architecture import built
from headstart.artifact.container import read_container, write_container
from headstart.artifact.description import Description
from headstart.artifact.inputs import BLOCK_ROWS, Block
from headstart.artifact.labelled import usable_rows
from headstart.artifact.target import class_names
from headstart.core import Params, checks, with_canonical_convolutions
from headstart.errors import HeadstartError, UsageError
from headstart.models import Model
from headstart.problems import Examples, Problem, Prototypes
from headstart.problems.prototypes import Prototyped
from headstart.simulate.files import in_structure_of, named_leaves

__all__ = ["Predictor", "load", "read_card", "stored_params"]

EXTRA = "adapting "
"""Before the names of arrays that are not of the model, but of how it adapts."""
SMALL_BLOCK = 64
ONE_CLASS = (
    "All {rows} rows are of the class {name!s}: they cannot say how many steps of which size serve best, which are "
    "those of training, nor whether the others are still told from it."
)


class Predictor:
    """A trained model, shared or a client's own.

    `load` makes one of a file. Data are a table (a CSV or Parquet file, a pandas or polars frame, an Arrow table,
    columns) with the columns that training had, or, for a model of images, arrays or a folder.
    """

    def __init__(
        self,
        description: Description,
        model: Model | None,
        params: Params,
        extras: Mapping[str, Any] | None = None,
        adaptation: AdaptationReport | None = None,
        digest: str | None = None,
    ):
        self.description = description
        """What the model file says."""
        self.model = model
        """The network; ``None`` where the loss was its maker's own, and there are parameters only."""
        self.params = params
        self.extras = dict(extras or {})
        self.adaptation = adaptation
        """What adapting did, for a model that has just been adapted."""
        self.digest = digest
        """The digest of the file it came from."""

    def predict(self, data: Any) -> np.ndarray:
        """The label of each row, or its value in the label's own units."""
        self.check_predicts()
        outputs = np.concatenate([self._empty(), *(self._outputs(block.stored) for block in self._blocks(data))])
        return self._labels(outputs)

    def predict_proba(self, data: Any) -> np.ndarray:
        """The probability of each class (columns, in the order of `classes`) for each row."""
        self._check_classifies()
        return np.concatenate([self._empty(), *(self._outputs(block.stored) for block in self._blocks(data))])

    def predict_batches(self, data: Any) -> Iterator[pa.Table]:
        """The table with predictions beside its columns, a block of rows at a time: never all of a file at once."""
        self.check_predicts()
        for block in self._blocks(data):
            yield self._beside(block, self._outputs(block.stored))

    def predict_file(self, data: Any, out: str | Path | None = None) -> int:
        """Write what `predict_batches` gives to a CSV or Parquet file, or as CSV to standard output; count the rows."""
        from headstart.artifact.streaming import predict_file

        return predict_file(self, data, None if out is None else Path(out))

    @property
    def classes(self) -> np.ndarray | None:
        """The classes in order; ``None`` for a regression."""
        target = self.description.target
        return None if target.classes is None else target.named_as_they_were

    def adapt(
        self, data: Any, *, steps: int | None = None, lr: float | None = None, label: str | None = None, seed: int = 0
    ) -> "Predictor":
        """A new client's own model from a few of its rows with labels.

        The number of steps and the step size are chosen by cross-validation on these rows where there are enough,
        and otherwise those of training, unless given. ``.adaptation`` of the result says what adapting did on rows
        held back; where it did not help, the result is the shared model. ``label`` is the column of labels, if it is
        not called as in training.
        """
        if steps is not None:
            checks.whole("steps", steps, 1)
        if lr is not None:
            checks.positive("lr", lr)
        problem = self.problem
        if isinstance(self.params, Prototyped):
            raise UsageError("The model has been adapted already.", "Adapt the shared one.")
        description = self.description
        stored, values, source = description.inputs.labelled(data, label or description.target.label)
        target = description.target
        classifies = description.problem.classifies
        rows, labels, notes = usable_rows(values, target, classifies, source)
        stored = stored[rows]
        if classifies and target.classes is None:
            target = replace(target, classes=self._own_classes(class_names(labels)))
        y = target.coded(labels) if classifies else target.standardised(labels, source, rows)
        inputs = description.inputs.for_client(stored)
        with self.precision():
            own, report = adapt(
                problem, description.adaptation, self.params, self.extras, Examples(stored, y), inputs.transform,
                steps=steps, lr=lr, seed=seed,
            )  # fmt: skip
        if classifies and len(y) > 1 and (y == y[0]).all():
            notes = (*notes, ONE_CLASS.format(rows=len(y), name=target.names(y)[0]))
        report = replace(report, notes=notes)
        said = report.to_json() | ({"from": self.digest} if self.digest else {})
        mine = replace(description, inputs=inputs, target=target, adapted=said)
        return Predictor(mine, self.model, own, self.extras, report)

    def save(self, path: str | Path) -> Path:
        """Write the model file; it appears whole or not at all."""
        arrays = dict(named_leaves(self.params))
        for name, tree in self.extras.items():
            arrays |= {f"{EXTRA}{name} {leaf}": array for leaf, array in named_leaves(tree)}
        self.digest = write_container(
            Path(path), {name: np.asarray(array) for name, array in arrays.items()}, self.description.to_json()
        )
        return Path(path)

    def card(self) -> str:
        """What the model is, what it takes, how good it was and where it came from, as Markdown."""
        from headstart.artifact.card import model_card

        return model_card(self.description, self.params, self.digest)

    def export(self, path: str | Path, format: Literal["stablehlo", "onnx"] = "stablehlo") -> Path:
        """Write the forward pass for another runtime, and beside it a JSON file that says what it takes and gives."""
        from headstart.artifact.exporting import export

        return export(self, Path(path), format)

    @cached_property
    def problem(self) -> Problem:
        """What was minimised."""
        return self.description.problem.problem(self.model, self.description.target)

    def forward(self, params: Params, stored: Array) -> Array:
        """From stored rows to probabilities of classes, or to a regression's outputs: a pure function."""
        x = self.description.inputs.features(stored)
        if isinstance(params, Prototyped):
            assert isinstance(self.problem, Prototypes)
            return jax.nn.softmax(self.problem.logits(params, x))
        assert self.model is not None
        outputs = self.model.apply(params, x)
        if not self.description.problem.classifies:
            return outputs
        if self.description.problem.error == "squared":
            # Outputs are drawn to 1 for the class and to 0 for the others.
            shares = jnp.clip(outputs, 1e-6, 1)
            return shares / jnp.sum(shares, axis=-1, keepdims=True)
        return jax.nn.softmax(outputs)

    @cached_property
    def _compiled(self) -> Callable[[Params, Any], Array]:
        return jax.jit(with_canonical_convolutions(self.forward))

    def precision(self) -> AbstractContextManager[Any]:
        """Double precision for a model that was trained in it."""
        wide = any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(self.params))
        return jax.enable_x64(wide or bool(jax.config.jax_enable_x64))  # type: ignore[attr-defined]

    def _blocks(self, data: Any) -> Iterator[Block]:
        return self.description.inputs.blocks(data)

    def _outputs(self, stored: np.ndarray) -> np.ndarray:
        """Of some rows, filled up to one of two sizes, for each size is a program; unless rows see each other."""
        size = SMALL_BLOCK if len(stored) <= SMALL_BLOCK else BLOCK_ROWS
        if self.model is not None and self.model.mixes_rows:
            size = min(max(len(stored), 1), BLOCK_ROWS)
        parts = []
        with self.precision():
            for start in range(0, len(stored), size):
                rows = stored[start : start + size]
                if self.model is None or not self.model.mixes_rows:
                    rows = np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])
                parts.append(np.asarray(self._compiled(self.params, rows))[: len(stored) - start])
        return np.concatenate([self._empty(), *parts])

    @cached_property
    def _empty_shape(self) -> jax.ShapeDtypeStruct:
        shape, dtype = self.description.inputs.row
        with self.precision():
            return jax.eval_shape(self.forward, self.params, jax.ShapeDtypeStruct((1, *shape), dtype))

    def _empty(self) -> np.ndarray:
        like = self._empty_shape
        return np.zeros((0, *like.shape[1:]), like.dtype)

    def rehearse(self) -> None:
        """Go through a prediction without computing anything, so that a file whose parts do not fit is refused."""
        outputs = self._empty_shape.shape
        classes = self.description.target.classes
        if classes is not None and outputs != (1, len(classes)):
            raise UsageError(f"the model has {outputs[1:]} outputs for {len(classes)} classes.")

    def _labels(self, outputs: np.ndarray) -> np.ndarray:
        target = self.description.target
        if self.description.problem.classifies:
            return target.names(np.argmax(outputs, axis=-1))
        values = target.units(outputs)
        return values.reshape(len(values)) if values.size == len(values) else values

    def _beside(self, block: Block, outputs: np.ndarray) -> pa.Table:
        table, target = block.table, self.description.target
        predicted: dict[str, np.ndarray] = {}
        labels = self._labels(outputs)
        name = f"predicted_{target.label or 'label'}"
        if labels.ndim == 1:
            predicted[name] = labels
        else:
            predicted |= {f"{name}_{j}": labels[:, j] for j in range(labels.shape[1])}
        if self.description.problem.classifies:
            classes = target.classes or tuple(map(str, range(outputs.shape[1])))
            predicted |= {f"probability_{name}": outputs[:, j] for j, name in enumerate(classes)}
        for name, values in predicted.items():
            while name in table.column_names:
                name += "_"
            table = table.append_column(name, pa.array(values))
        return table

    def _own_classes(self, names: list[str]) -> tuple[str, ...]:
        classes, most = tuple(sorted(set(names))), self.description.problem.ways
        if len(classes) > most:
            raise UsageError(f"The rows have {len(classes)} classes, and the model tells {most} apart.", "Give fewer.")
        # Outputs that no class of these rows has are never learned, but they have to be called something.
        return (*classes, *(f"(class {number})" for number in range(len(classes), most)))

    def check_predicts(self) -> None:
        """Refuse a shared model that predicts nothing before it is adapted."""
        if isinstance(self.problem, Prototypes) and not isinstance(self.params, Prototyped):
            raise UsageError(
                "The shared model tells classes apart by the means of a client's own samples.", "Adapt it first."
            )

    def _check_classifies(self) -> None:
        self.check_predicts()
        if not self.description.problem.classifies:
            raise UsageError("The model predicts numbers, which have no probabilities.", "Use predict.")


def load(path: str | Path, *, trust: bool = False, model: Model | None = None) -> Predictor:
    """A trained model from its file, which may come from anywhere: it is checked, and runs no code of its own.

    A network that is not headstart's is named in the file by its import path, and imported only with ``trust=True``;
    ``model`` gives the network itself.
    """
    path = Path(path)
    arrays, content, digest = read_container(path)
    description = _described(path, content)
    network = _built(path, description, trust, arrays) if model is None else model
    with jax.enable_x64(any(array.dtype == np.float64 for array in arrays.values()) or jax.config.jax_enable_x64):  # type: ignore[attr-defined]
        try:
            params, extras = _restored(path, description, network, arrays)
            predictor = Predictor(description, network, params, extras, digest=digest)
            if description.problem.kind != "other" and (
                description.problem.kind != "prototypes" or isinstance(params, Prototyped)
            ):
                predictor.rehearse()
            description.adaptation.build()
        except Exception as error:
            # Whatever it is that does not fit, the file is at fault: all of its parts have been read from it.
            raise _unusable(path, error) from error
    return predictor


def read_card(path: str | Path) -> str:
    """The model card of a file, of whatever network: nothing is imported or built for it."""
    from headstart.artifact.card import model_card

    arrays, content, digest = read_container(Path(path))
    return model_card(_described(Path(path), content), _of_model(arrays), digest)


def stored_params(path: Path, template: Params) -> Params:
    """The parameters of a model file in the structure of ``template``."""
    arrays, _, _ = read_container(path)
    return in_structure_of(template, _of_model(arrays), path)


def _described(path: Path, content: Mapping[str, Any]) -> Description:
    try:
        return Description.from_json(content)
    except (UsageError, OverflowError, TypeError, ValueError) as error:
        raise _unusable(path, error) from error


def _built(path: Path, description: Description, trust: bool, arrays: Mapping[str, np.ndarray]) -> Model | None:
    if description.problem.kind == "other":
        return None
    try:
        return built(description.architecture, trust, arrays)
    except UsageError as error:
        if not description.architecture.bundled:
            raise UsageError(f"{path}: {error.problem}", error.remedy) from error
        raise _unusable(path, error) from error
    except (OverflowError, TypeError, ValueError) as error:
        raise _unusable(path, error) from error


def _restored(
    path: Path, description: Description, model: Model | None, arrays: Mapping[str, np.ndarray]
) -> tuple[Params, dict[str, Any]]:
    """Parameters in the structure of the model, whose shapes are found without allocating anything."""
    own = _of_model(arrays)
    if model is None:
        return {name: jnp.asarray(array) for name, array in own.items()}, {}
    template = jax.eval_shape(model.init, jax.random.key(0))
    algorithm = description.adaptation.build()
    extras = {}
    if algorithm.adapts_with:
        sent = jax.eval_shape(
            lambda params: algorithm.broadcast(algorithm.init_server(params), jax.random.key(0)), template
        )
        for name in algorithm.adapts_with:
            prefix = f"{EXTRA}{name} "
            stored = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            extras[name] = in_structure_of(sent._asdict()[name], stored, path)
    if description.problem.kind == "prototypes" and any(name.startswith(".sums") for name in own):
        sums, shares = own[".sums"], own[".shares"]
        template = Prototyped(template, jnp.asarray(sums), jnp.asarray(shares))
    return in_structure_of(template, own, path), extras


def _of_model(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if not name.startswith(EXTRA)}


def _unusable(path: Path, error: Exception) -> UsageError:
    reason = error.problem if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
    if isinstance(error, HeadstartError) and not isinstance(error, UsageError):
        reason = str(error)
    return UsageError(
        f"{path} is no model file that can be used: {' '.join(reason.split())[:300]}",
        "Get it anew from where it was made.",
    )
