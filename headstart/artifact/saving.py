"""From a trained run to the model that goes into its file."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.artifact.architecture import Architecture, architecture_of
from headstart.artifact.description import Description, Score, problem_kind
from headstart.artifact.inputs import ArrayInputs, Inputs, Scaling, TableInputs
from headstart.artifact.predictor import Predictor
from headstart.artifact.rule import rule_of
from headstart.artifact.target import Target
from headstart.core import FULL, Algorithm, Weighted
from headstart.data import EpisodeClients, Federation
from headstart.data.samples import plain_examples, signed_images, unit_images
from headstart.data.tables import Encoding
from headstart.metrics import LOSS
from headstart.models import Model
from headstart.problems import Classification, Examples, Problem, Prototypes, Regression
from headstart.simulate import Evaluation, Result, summarized_metrics
from headstart.simulate.evaluate import kept_round

__all__ = ["trained_model"]

SCALINGS: Mapping[Callable[..., Any], Scaling] = {
    unit_images: "unit",
    signed_images: "signed",
    plain_examples: "plain",
}


def trained_model(
    result: Result,
    *,
    method: str,
    algorithm: Algorithm,
    problem: Problem,
    federation: Federation,
    evaluation: Evaluation,
    steps: int | None = None,
    config: Mapping[str, Any],
    data: str,
    versions: Mapping[str, str],
) -> Predictor:
    """The model that a method has trained, with all that its file says.

    ``steps`` is by how many steps clients adapt; left out, the number that served best. ``config`` is the experiment
    as resolved, and ``data`` the digest of the data.
    """
    scores, served_best = _scores(result)
    adapting = evaluation.adapting(algorithm)
    model = problem.model if isinstance(problem, (Classification, Prototypes, Regression)) else None
    own_classes = isinstance(federation.clients, EpisodeClients)
    target = _target(problem, federation, config, own_classes)
    ways = federation.task.outputs if own_classes and federation.task is not None else 0
    description = Description(
        problem=problem_kind(problem, ways),
        architecture=_architecture(model, problem),
        inputs=_inputs(federation),
        target=target,
        adaptation=rule_of(adapting, method, served_best if steps is None else steps, evaluation.batch_size),
        scores=scores,
        source={
            "method": method,
            "rounds": kept_round(result.summary),
            "clients": federation.trained if not federation.endless else "endlessly many",
            "seed": config["seed"],
            "data": _data_name(config["data"]),
            "settings": config["baselines"].get(method, config["algorithm"]),
            "versions": dict(versions),
            "config_digest": _digest(config),
            "data_digest": data,
        },
    )
    sent = {} if not adapting.adapts_with else result.sent._asdict()
    extras = {name: jax.tree.map(jnp.asarray, sent[name]) for name in adapting.adapts_with}
    return Predictor(description, model, result.params, extras)


def _architecture(model: Model | None, problem: Problem) -> Architecture:
    if model is None:
        return Architecture(type(problem).__name__, {}, missing=f"a {type(problem).__name__} of its maker's own")
    return architecture_of(model)


def _inputs(federation: Federation) -> Inputs:
    """How rows become a model's inputs, as far as a file can say it."""
    samples = None if federation.partition is None else federation.partition.samples
    transform: Any = None
    if samples is not None:
        usual = unit_images if samples.x.dtype == np.uint8 else plain_examples
        transform = usual if samples.transform is None else samples.transform
        if isinstance(transform, Encoding):
            return TableInputs(transform)
        if transform in SCALINGS:
            dtype = samples.x.dtype if samples.x.dtype in (np.uint8, np.float64) else np.dtype(np.float32)
            return ArrayInputs(samples.x.shape[1:], str(dtype), SCALINGS[transform])
    prepared_by = None
    if transform is not None:
        prepared_by = f"{transform.__module__}.{getattr(transform, '__qualname__', type(transform).__qualname__)}"
    return ArrayInputs(_input_shape(federation), "float32", "none" if prepared_by else "plain", prepared_by)


def _input_shape(federation: Federation) -> tuple[int, ...]:
    """The shape of one input, from what is said of the data or else from a client's samples."""
    if federation.task is not None:
        inputs = federation.task.inputs
        return (inputs,) if isinstance(inputs, int) else tuple(inputs)
    client = np.array([federation.total - 1 if federation.endless else 0])
    clients, places = federation.clients.gather(("query",), client, 1)
    view = clients.view("query", jnp.asarray(places[0]))
    batch = jax.eval_shape(lambda: view.sample(jax.random.key(0), FULL))
    samples = batch.samples if isinstance(batch, Weighted) else batch
    return samples.x.shape[1:] if isinstance(samples, Examples) else ()


def _target(problem: Problem, federation: Federation, config: Mapping[str, Any], own_classes: bool) -> Target:
    label = config["data"].get("label")
    if isinstance(problem, Regression):
        return Target(label, None, problem.target_mean, problem.target_scale)
    if own_classes or not isinstance(problem, (Classification, Prototypes)):
        return Target(label)
    samples = None if federation.partition is None else federation.partition.samples
    if samples is not None and samples.classes is not None:
        return Target(label, samples.classes)
    outputs = federation.task.outputs if federation.task is not None else 0
    return Target(label, tuple(map(str, range(outputs))) or None)


def _scores(result: Result) -> tuple[tuple[Score, ...], int]:
    """The scores of new clients, or of all if all trained, in the round that is kept; and the steps that served best.

    Steps are chosen on validation clients where there are any, so that new ones are looked at only once.
    """
    rows = result.summary.to_pylist()
    kept = kept_round(result.summary)
    rows = [row for row in rows if row["round"] == kept]
    groups = {row["group"] for row in rows}
    group = next(group for group in ("new", "held-out", "all") if group in groups)
    choosing = "validation" if "validation" in groups else group
    metrics = summarized_metrics(result.summary)
    headline = next((metric for name, metric in metrics.items() if name != LOSS.name), LOSS)
    judged, losses = (
        {
            row["steps"]: row["mean"]
            for row in rows
            if (row["group"], row["metric"]) == (choosing, name) and row["steps"]
        }
        for name in (headline.name, LOSS.name)
    )
    scores = []
    for row in (row for row in rows if row["group"] == group):
        metric = metrics[row["metric"]]
        numbers = {name: row[name] for name in ("mean", "std", "worst10") if math.isfinite(row[name])}
        scores.append(
            Score(group, metric.name, row["steps"], row["clients"], metric.unit, metric.higher_is_better, **numbers)
        )

    def better(one: int, other: int) -> int:
        """The loss decides between equals."""
        equal = judged[other] == judged[one] and losses[other] < losses[one]
        return other if equal or headline.better(judged[other], judged[one]) else one

    return tuple(scores), reduce(better, judged or [1])


def _data_name(section: Mapping[str, Any]) -> str:
    """What the data were, without where they lay."""
    return Path(section["path"]).name if "path" in section else str(section["name"])


def _digest(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
