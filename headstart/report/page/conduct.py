"""Sections on how the run was conducted: privacy, faults of a deployment, settings, and how to repeat it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.experiment import RunRecord
from headstart.report.page.charts import altair, figure, legend, source
from headstart.report.page.document import Block, Code, Column, Figure, Section, Table, Text
from headstart.report.page.reading import Evidence

__all__ = ["faults_section", "privacy_section", "settings_section"]

EVENTS = "events.jsonl"
FAULTS = ("left_out", "lost", "waiting", "stopped")
SHOWN = 200
LITTLE = 10.0
"""From this epsilon on a promise is worth little: odds may change by a factor of 20,000."""


def privacy_section(evidence: Evidence) -> Section:
    """What each run spends, or that nothing is promised."""
    blocks: list[Block] = []
    for run in evidence.runs:
        name = "" if len(evidence.runs) == 1 else f"{run.path}: "
        if run.privacy is not None:
            words = f"{name}Each method has {run.privacy}. Whoever publishes several methods' models spends the sum."
            if run.privacy.epsilon > LITTLE:
                words += " So large an epsilon promises next to nothing."
            blocks.append(Text(words))
        else:
            wire = run.config.get("wire")
            how = "there is no noise on the wire" if wire else "updates were averaged as they are"
            blocks.append(Text(f"{name}No differential privacy is promised: {how}."))
    return Section("privacy", "Privacy spent", blocks)


def faults_section(evidence: Evidence) -> Section | None:
    """What went wrong between the server and its sites, where the run was deployed."""
    blocks: list[Block] = []
    for run in evidence.runs:
        events = read_events(run)
        if events is not None:
            blocks += _faults(run, events, len(evidence.runs) > 1)
    return Section("faults", "Faults of the deployment", blocks) if blocks else None


def read_events(run: RunRecord) -> list[dict[str, Any]] | None:
    """The log of a deployed run's server, which lies beside its run directory; ``None`` for a simulated one."""
    if run.path is None:
        return None
    for path in (run.path / EVENTS, run.path.resolve().parent / EVENTS):
        if path.is_file():
            return [event for line in path.read_text(errors="replace").splitlines() if (event := _event(line))]
    return None


def _event(line: str) -> dict[str, Any] | None:
    """A line, if it is whole: a server that was killed may leave half of one."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _faults(run: RunRecord, events: Sequence[Mapping[str, Any]], named: bool) -> list[Block]:
    name = f"{run.path}: " if named else ""
    suffix = f"-{run.path.name}" if named and run.path is not None else ""
    closed = sum(event.get("event") == "closed" for event in events)
    faults = [event for event in events if event.get("event") in FAULTS]
    resumed = sum(event.get("event") == "resumed" for event in events)
    summary = f"{name}{closed:,} rounds were closed"
    summary += f", and the server was resumed {'once' if resumed == 1 else f'{resumed} times'}" if resumed else ""
    if not faults:
        return [Text(f"{summary}; no site failed.")]
    counts = Counter((str(e.get("site", "the server")), str(e["event"]), str(e.get("reason", ""))) for e in faults)
    rounds: dict[tuple[str, str, str], list[int]] = {}
    for event in faults:
        key = (str(event.get("site", "the server")), str(event["event"]), str(event.get("reason", "")))
        if isinstance(event.get("round"), int):
            rounds.setdefault(key, []).append(event["round"])
    rows = [
        [site, what.replace("_", " "), reason, str(count), _stretch(rounds.get((site, what, reason), []))]
        for (site, what, reason), count in counts.most_common(SHOWN)
    ]
    columns = [Column("site"), Column("what"), Column("reason"), Column("times", True), Column("rounds")]
    blocks: list[Block] = [
        Text(f"{summary}; there were {len(faults):,} faults at {len({row[0] for row in rows})} places."),
        Table(f"faults{suffix}", "Faults by site and reason", columns, rows),
    ]
    drawn = _timeline(faults, suffix)
    return [*blocks, drawn] if drawn is not None else blocks


def _stretch(rounds: Sequence[int]) -> str:
    if not rounds:
        return ""
    return str(rounds[0]) if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"


def _timeline(faults: Sequence[Mapping[str, Any]], suffix: str) -> Figure | None:
    placed = [fault for fault in faults if isinstance(fault.get("round"), int)]
    if not placed:
        return None
    alt = altair()
    sites = Counter(str(fault.get("site", "the server")) for fault in placed)
    most = [site for site, _ in sites.most_common(30)]
    kept = [fault for fault in placed if str(fault.get("site", "the server")) in most]
    rows = {
        "round": [fault["round"] for fault in kept],
        "site": [str(fault.get("site", "the server")) for fault in kept],
        "what": [str(fault["event"]).replace("_", " ") for fault in kept],
    }
    chart = (
        alt.Chart(source())
        .mark_tick(thickness=2)
        .encode(
            x=alt.X("round:Q", title="communication round"),
            y=alt.Y("site:N", title=None, sort=most),
            color=alt.Color("what:N", title=None, legend=legend()),
            tooltip=["site:N", "what:N", "round:Q"],
        )
    )
    return figure(
        f"faults{suffix}", "When sites failed", "A tick is a fault of a site in a round.",
        f"Ticks by round and site. Most faults: {', '.join(f'{site} {n}' for site, n in sites.most_common(5))}.",
        chart, rows=rows,
    )  # fmt: skip


def settings_section(evidence: Evidence) -> Section:
    """All settings with their values, versions, and the command that repeats the run."""
    blocks: list[Block] = []
    for run in evidence.runs:
        name = "" if len(evidence.runs) == 1 or run.path is None else f" of {run.path}"
        suffix = "" if len(evidence.runs) == 1 or run.path is None else f"-{run.path.name}"
        if "python" in json.dumps(run.config):
            blocks.append(Text(f"The run{name} was of Python objects: run the program again that made them."))
        else:
            file = f"{'run' if run.path is None else run.path.resolve().name}.toml"
            blocks += [
                Code(
                    f"Repeat the run{name}: save its settings as {file}, then", f"headstart run {file} --out runs/again"
                ),
                Code(f"Settings{name}", as_toml(run.config), file),
            ]
        rows = [[key, shown] for key, shown in _flat(run.config)]
        rows += [[f"version of {package}", version] for package, version in run.versions.items()]
        blocks.append(
            Table(f"settings{suffix}", f"Settings and versions{name}", [Column("setting"), Column("value")], rows)
        )
    return Section("settings", "Settings, and how to repeat it", blocks)


def _flat(config: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in config.items():
        where = f"{before}.{key}" if before else key
        if isinstance(value, Mapping):
            found += _flat(value, where)
        else:
            found.append((where, json.dumps(value, ensure_ascii=False)))
    return found


def as_toml(config: Mapping[str, Any]) -> str:
    """A configuration as a file that `headstart run` reads."""
    import tomli_w

    return tomli_w.dumps(_without_nothing(config))


def _without_nothing(value: Any) -> Any:
    """TOML has no word for nothing: what is not set is left out."""
    if isinstance(value, Mapping):
        return {key: _without_nothing(part) for key, part in value.items() if part is not None}
    return [_without_nothing(part) for part in value] if isinstance(value, list) else value
