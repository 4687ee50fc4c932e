"""The model card: what a file holds, for people."""

from collections.abc import Mapping
from typing import Any

import jax

from headstart.artifact.description import Description, Score
from headstart.core import Params
from headstart.metrics import LOSS, Metric

__all__ = ["model_card"]

MOST_LINES = 30
"""The most columns and classes that are listed."""


def model_card(description: Description, params: Params, digest: str | None) -> str:
    """A model file's contents as Markdown."""
    source = description.source
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    own = description.adapted is not None
    sections = [
        "# " + ("A client's own model" if own else "Shared model") + f" for {_what(description)}",
        _facts(
            {
                "kind": description.problem.kind,
                "network": _network(description),
                "parameters": f"{parameters:,}",
                "trained by": f"{source.get('method')}, {source.get('rounds')} rounds, {source.get('clients')} clients",
                "data": source.get("data"),
                "digest": None if digest is None else f"`{digest[:16]}`",
            }
        ),
        "## What it takes",
        _list(description.inputs.lines()),
        "## What it predicts",
        _predicts(description),
        "## How it adapts",
        _adapts(description),
    ]
    if description.adapted is not None:
        sections += ["## What adapting did", *_adapted(description.adapted)]
    if description.scores:
        sections += ["## How good it was for clients", _scores(description.scores)]
    sections += ["## Where it came from", _facts(_origin(source))]
    return "\n\n".join(sections) + "\n"


def _what(description: Description) -> str:
    kinds = {"prototypes": "classes of a client's own", "other": "a loss of its maker's own"}
    kind = description.problem.kind
    return f"`{description.target.label}`" if description.target.label else kinds.get(kind, f"a {kind}")


def _network(description: Description) -> str:
    architecture = description.architecture
    if not architecture.bundled:
        needs = ", ".join(f"{name} {version}" for name, version in (architecture.needs or {}).items())
        code = ", ".join(f"`{path}`" for path in architecture.imports) or architecture.missing
        return f"{architecture.name} of its maker's own, built by {code}" + (f"; needs {needs}" if needs else "")
    settings = ", ".join(f"{name} {value}" for name, value in architecture.settings.items())
    return f"{architecture.name} ({settings})"


def _predicts(description: Description) -> str:
    target = description.target
    if description.problem.kind == "other":
        return "Its loss is its maker's own: the file holds parameters for that code."
    if not description.problem.classifies:
        units = (
            f", from outputs times {target.scale:g} plus {target.mean:g}" if target.scale != 1 or target.mean else ""
        )
        return f"A number in the label's own units{units}."
    if target.classes is None:
        return f"One of {description.problem.ways} classes, which are those of the rows it is adapted on."
    return f"One of {len(target.classes)} classes, and their probabilities:\n\n" + _list(
        [f"`{name}`" for name in target.classes]
    )


def _adapts(description: Description) -> str:
    rule = description.adaptation
    size = "" if rule.lr is None else f" of size {rule.lr:g}"
    batch = "all rows" if rule.batch_size == "full" else f"{rule.batch_size} rows drawn at random"
    return (
        f"As {rule.method} does: {rule.steps} step{'s' if rule.steps != 1 else ''}{size} on "
        f"{batch} served best in training. `headstart adapt` chooses both on the new client's rows."
    )


def _adapted(said: Mapping[str, Any]) -> list[str]:
    curve = said.get("curve")
    parts = [str(said.get("words", ""))]
    if isinstance(curve, list) and curve and all(isinstance(row, Mapping) for row in curve):
        names = ["steps", *(name for name in curve[0] if name != "steps")]
        rows = [[_number(row.get(name)) for name in names] for row in curve]
        parts.append(_table(names, rows))
    return parts


def _scores(scores: tuple[Score, ...]) -> str:
    """One row per metric, with the loss at the end, and one column per number of steps."""
    steps = sorted({score.steps for score in scores})
    named = sorted({score.metric: None for score in scores}, key=lambda name: name == LOSS.name)
    rows = []
    for name in named:
        here = {score.steps: score for score in scores if score.metric == name}
        last = here[max(here)]
        metric = Metric(name, higher_is_better=last.higher_is_better, unit=last.unit)
        shown = [_mean(metric, here.get(number)) for number in steps]
        rows.append([metric.title, *shown, "" if last.worst10 is None else metric.show(last.worst10)])
    after = ["shared model" if number == 0 else f"after {number} step{'s' * (number > 1)}" for number in steps]
    clients = max(score.clients for score in scores)
    whose = "who all trained" if scores[0].group == "all" else "that nothing was learned from or chosen by"
    what = f"Mean and deviation over {clients} clients {whose}, and the mean of the worst tenth of them.\n\n"
    return what + _table(["metric", *after, "worst 10%"], rows)


def _mean(metric: Metric, score: Score | None) -> str:
    if score is None or score.mean is None:
        return "none"
    return metric.show(score.mean) + ("" if score.std is None else f" ± {metric.show(score.std, beside=score.mean)}")


def _origin(source: Mapping[str, Any]) -> dict[str, Any]:
    settings, versions = (source.get(name) for name in ("settings", "versions"))
    return {
        "seed": source.get("seed"),
        "settings": _pairs(settings),
        "versions": _pairs(versions),
        "configuration": f"`{source.get('config_digest')}`",
        "data": f"`{source.get('data_digest')}`",
    }


def _pairs(table: Any) -> str | None:
    return ", ".join(f"{name} {value}" for name, value in table.items()) if isinstance(table, Mapping) else None


def _facts(facts: Mapping[str, Any]) -> str:
    return _list([f"**{name}**: {value}" for name, value in facts.items() if value is not None])


def _list(lines: list[str]) -> str:
    shown = [*lines[:MOST_LINES], *([f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else [])]
    return "\n".join(f"- {' '.join(line.split())}" for line in shown)


def _table(names: list[str], rows: list[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "none"
