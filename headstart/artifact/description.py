"""What a model file says of itself: all that someone without the training code and the data has to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from headstart.artifact.architecture import Architecture
from headstart.artifact.inputs import Inputs, inputs_from_json
from headstart.artifact.rule import AdaptationRule
from headstart.artifact.target import Target
from headstart.config import plan
from headstart.errors import UsageError
from headstart.models import Model
from headstart.problems import Classification, Problem, Prototypes, Regression

__all__ = ["FORMAT", "Description", "ProblemKind", "Score", "problem_kind"]

FORMAT = 1


@dataclass(frozen=True)
class ProblemKind:
    """What was minimised."""

    kind: Literal["classification", "regression", "prototypes", "other"]
    """``other`` for a loss of the user's own: such a file holds parameters, and cannot predict by itself."""
    error: Literal["cross-entropy", "squared"] = "cross-entropy"
    ways: int = 0
    """The number of classes, where every client has its own."""

    @property
    def classifies(self) -> bool:
        """Whether classes are predicted."""
        return self.kind in ("classification", "prototypes")

    def problem(self, model: Model | None, target: Target) -> Problem:
        """The problem of a model for some target."""
        if model is None:
            raise UsageError(
                "The model was trained with a loss of its maker's own, which is not in the file.",
                "Use its parameters with that code: MethodRecord.params, or any reader of safetensors.",
            )
        if self.kind == "classification":
            return Classification(model, self.error)
        if self.kind == "prototypes":
            return Prototypes(model, self.ways)
        return Regression(model, target_mean=target.mean, target_scale=target.scale)


def problem_kind(problem: Problem, ways: int) -> ProblemKind:
    """What a file says of a problem; ``ways`` where every client has classes of its own."""
    if isinstance(problem, Prototypes):
        return ProblemKind("prototypes", ways=problem.ways)
    if isinstance(problem, Classification):
        return ProblemKind("classification", problem.error, ways)
    return ProblemKind("regression" if isinstance(problem, Regression) else "other")


@dataclass(frozen=True)
class Score:
    """How good the model was for clients, after so many steps of adaptation."""

    group: str
    metric: str
    steps: int
    clients: int
    unit: str = ""
    higher_is_better: bool = False
    mean: float | None = None
    std: float | None = None
    worst10: float | None = None


@dataclass(frozen=True)
class Description:
    """All that a file says of its parameters."""

    problem: ProblemKind
    architecture: Architecture
    inputs: Inputs
    target: Target
    adaptation: AdaptationRule
    scores: tuple[Score, ...]
    source: Mapping[str, Any]
    """Where the model came from: versions, method, settings, digests of the configuration and of the data."""
    adapted: Mapping[str, Any] | None = None
    """Of a client's own model: how it came from the shared one, and what that did on rows that were held back."""

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {
            "format": FORMAT,
            "problem": _said(self.problem),
            "architecture": _said(self.architecture),
            "inputs": self.inputs.to_json(),
            "target": _said(self.target),
            "adaptation": _said(self.adaptation),
            "scores": [_said(score) for score in self.scores],
            "source": dict(self.source),
            **({} if self.adapted is None else {"adapted": dict(self.adapted)}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Description":
        """From plain values, each of which is checked."""
        if content.get("format") != FORMAT:
            raise UsageError(
                f"it is of format {content.get('format')!r:.20}, and this version of headstart reads {FORMAT}."
            )
        tables = {
            name: _table(content, name)
            for name in ("problem", "architecture", "inputs", "target", "adaptation", "source")
        }
        scores = content.get("scores")
        if not isinstance(scores, list):
            raise UsageError("it has no scores.")
        adapted = content.get("adapted")
        if adapted is not None and not isinstance(adapted, Mapping):
            raise UsageError("what it says of its adaptation is no table.")
        target: Target = plan(Target, tables["target"], "target").build()
        if not target.scale > 0:
            raise UsageError("target.scale is not above 0.")
        return cls(
            problem=plan(ProblemKind, tables["problem"], "problem").build(),
            architecture=plan(Architecture, tables["architecture"], "architecture").build(),
            inputs=inputs_from_json(tables["inputs"]),
            target=target,
            adaptation=plan(AdaptationRule, tables["adaptation"], "adaptation").build(),
            scores=tuple(plan(Score, _mapping(score), "scores").build() for score in scores),
            source=tables["source"],
            adapted=adapted,
        )


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _mapping(content.get(name), name)


def _mapping(value: Any, name: str = "a score") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is missing or no table.")
    return value


def _said(thing: Any) -> dict[str, Any]:
    """A dataclass as plain values, without what is not there."""
    values = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
