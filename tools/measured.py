"""The measured part of docs/choosing.md, made from the comparisons in docs/comparisons.

python -m tools.measured        # writes it again
"""

import tomllib
from pathlib import Path
from typing import Any

from headstart.comparisons import Comparison, load_comparison
from headstart.statistics import Interval

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "comparisons"
PAGE = ROOT / "docs" / "choosing.md"
BEGIN, END = "<!-- measured: python -m tools.measured -->\n", "<!-- end of what was measured -->"
CLIENTS = {
    "har": "18, 4, 8 people",
    "mnist-small": "40, 10, 30 clients",
    "omniglot": "33 alphabets; 60 tasks of 5 others; 60 of 12 others",
    "shakespeare": "778, 40, 40 roles",
    "sine": "25, 20, 30 waves",
}
"""Who trains, who chooses settings, and who is new."""


def measured() -> str:
    """Two tables: every method on every data set, and what was run."""
    found = {name: load_comparison(FOLDER / f"{name}.json") for name in CLIENTS if (FOLDER / f"{name}.json").exists()}
    missing = [f"`{name}`" for name in CLIENTS if name not in found]
    note = [f"Not measured yet: {', '.join(missing)}.", ""] if missing else []
    if not found:
        return "\n".join(note)
    methods = list(dict.fromkeys(entry.title for comparison in found.values() for entry in comparison.entries))
    lines = [*note, "| | " + " | ".join(f"`{name}`, {c.metric.title}" for name, c in found.items()) + " |"]
    lines.append("|---" * (len(found) + 1) + "|")
    columns = {name: _column(comparison) for name, comparison in found.items()}
    for method in methods:
        lines.append(f"| {method} | " + " | ".join(column.get(method, "") for column in columns.values()) + " |")
    lines += ["", "| | who trains, chooses, is new | model | rounds, clients per round, local steps, batch |"]
    lines.append("|---|---|---|---|")
    lines += [_run(name) for name in found]
    return "\n".join(lines) + "\n"


def _column(comparison: Comparison) -> dict[str, str]:
    """Each method's mean and half its interval; bold for those that cannot be told from the best."""
    order, means = comparison.order(), comparison.means()
    best = comparison.entries[order[0]].title
    differing = {
        pair.second if pair.first == best else pair.first
        for pair in comparison.over_seeds()
        if best in (pair.first, pair.second) and pair.differs()
    }
    shown = {}
    for entry, mean in zip(comparison.entries, means, strict=True):
        lost = comparison.diverged(entry)
        text = _interval(comparison, mean)
        if entry.title not in differing and not lost:
            text = f"**{text}**"
        shown[entry.title] = f"{text}, {lost} of {len(entry.seeds)} seeds diverged" if lost else text
    return shown


def _interval(comparison: Comparison, mean: Interval) -> str:
    metric = comparison.metric
    if not mean.known:
        return metric.show(mean.mean)
    return f"{metric.show(mean.mean)} ± {metric.show((mean.high - mean.low) / 2, beside=mean.mean)}"


def _run(name: str) -> str:
    tables: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    model, algorithm, train = tables["model"], tables["algorithm"], tables["train"]
    layers = "-".join(map(str, model["hidden"]))
    steps = f"{train['rounds']}, {train['cohort']}, {algorithm['local_steps']}, {algorithm['batch_size']}"
    return f"| [`{name}`](comparisons/{name}.toml) | {CLIENTS[name]} | {model['name'].upper()} {layers} | {steps} |"


def page(text: str) -> str:
    """The page with its measured part made again."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{measured()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
