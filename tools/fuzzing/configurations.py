"""Experiments that are wrong or odd: in their text, in their keys, in their values."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headstart as hs
from headstart.experiment.running import Job
from tools.fuzzing.judge import Case, command

BASE: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "mnist-small", "clients": 4, "held_out": 1},
    "model": {"name": "mlp", "hidden": [4], "activation": "elu"},
    "algorithm": {
        "name": "per-fedavg", "curvature": "exact", "inner_lr": 0.01, "outer_lr": 0.01, "local_steps": 2,
        "batch_size": 4,
    },
    "baselines": {"fedavg": {"name": "fedavg"}},
    "train": {"rounds": 1, "cohort": 2, "weighting": "uniform", "backend": "vmap"},
    "evaluate": {"steps": [0, 1], "every": 1, "max_clients": 2},
    "wire": {"clip": 1.0, "noise": 0.5},
}  # fmt: skip
WORDS = (
    "",
    "x",
    "per-fedavg",
    "exact",
    "full",
    "auto",
    "none",
    "mlp",
    "sine",
    "../..",
    "a" * 300,
    "ü\u202e",
    "true",
    "0",
)
NUMBERS = (
    0, 1, 2, -1, 3, 7, 100, 10**6, 10**12, 2**63 - 1, 2**70, 0.0, -0.5, 0.5, 1.5, 1e-300, 1e300,
    float("inf"), float("nan"),
)  # fmt: skip
KEYS = ("rounds", "inner_lr", "name", "hidden", "seed", "steps", "kind", "partition", "lr", "Rounds", "train", "é", "x")


def configurations(rng: random.Random, folder: Path) -> Iterator[Case]:
    """Endlessly many."""
    number = 0
    while True:
        number += 1
        path = folder / f"experiment{number}.toml"
        way = rng.choice((_of_changed_tables, _of_changed_tables, _of_changed_text, _of_settings))
        yield way(rng, path)


def checked(path: Path | None, settings: list[str]) -> None:
    """All that happens before the first round."""
    experiment = hs.Experiment.from_toml(path, settings=settings)
    Job(experiment.settings, experiment.federation)


def _of_changed_tables(rng: random.Random, path: Path) -> Case:
    tables: dict[str, Any] = json.loads(json.dumps(BASE))
    touched = [path.name, *(_change(rng, tables) for _ in range(rng.choice((1, 1, 1, 2, 4))))]
    text = _toml(tables)
    path.write_text(text)
    if rng.random() < 0.02:
        words = ["run", str(path), "--out", str(path.with_suffix("")), "--set", "train.rounds=1"]
        return Case(f"run {touched[1:]}\n{text}", lambda: command(words), _parts(touched))
    return Case(f"{touched[1:]}\n{text}", lambda: checked(path, []), _parts(touched))


def _of_changed_text(rng: random.Random, path: Path) -> Case:
    content = bytearray(_toml(BASE).encode())
    for _ in range(rng.choice((1, 1, 2, 10))):
        place = rng.randrange(len(content))
        match rng.randrange(4):
            case 0:
                content[place] = rng.randrange(256)
            case 1:
                del content[place : place + rng.randrange(1, 40)]
            case 2:
                content[place:place] = rng.choice(
                    (b"\0", b"\xff", b"[[", b'"""', b"= =", b"\r", b"}", b"inf", b"1e999")
                )
            case 3:
                del content[place:]
        if not content:
            break
    path.write_bytes(content)
    lines = content.decode("utf8", "replace").splitlines()
    words = [
        path.name,
        *(line.split("=")[0].strip(" []\"'") for line in lines),
        "section",
        "algorithm",
        "data",
        "model",
    ]
    return Case(f"text\n{bytes(content)!r}", lambda: checked(path, []), _parts(words))


def _of_settings(rng: random.Random, path: Path) -> Case:
    path.write_text(_toml(BASE))
    settings = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        section = rng.choice((*BASE, "", "extra", "data.partition", "baselines.fedavg"))
        key = rng.choice((*(BASE.get(section) or {} if isinstance(BASE.get(section), dict) else {}), *KEYS))
        value = rng.choice((*WORDS, *map(str, NUMBERS), "[1,2]", "{a=1}", "[", "'", "1979-05-27", "nan", "[[1],[2]]"))
        settings.append(
            rng.choice((f"{section}.{key}={value}", f"{section}.{key}", f"{section}.{key}=", f"={value}", key))
        )
    words = _parts(
        [path.name, "--set", *settings, *(part for one in settings for part in one.replace("=", ".").split("."))]
    )
    if rng.random() < 0.5:
        return Case(f"--set {settings}", lambda: checked(path, settings), words)
    told = [word for setting in settings for word in ("--set", setting)]
    line = ["plan" if rng.random() < 0.05 else "run", str(path), *told, "--out", str(path.with_suffix(""))]
    if line[0] == "plan":
        line = line[:-2]
    return Case(f"command {line}", lambda: command(line), (*words, "--out"))


def _change(rng: random.Random, tables: dict[str, Any]) -> str:
    """Change something, and say which key it was."""
    section = rng.choice(list(tables))
    table = tables[section]
    match rng.randrange(7):
        case 0:
            del tables[section]
            return section
        case 1:
            tables[section] = _value(rng)
            return section
        case 2:
            name = rng.choice((*KEYS, section + "s"))
            tables[name] = {"a": _value(rng)} if rng.random() < 0.5 else _value(rng)
            return name
    if not isinstance(table, dict) or not table:
        tables[section] = _value(rng)
        return section
    key = rng.choice(list(table))
    match rng.randrange(4):
        case 0:
            table[rng.choice((key[:-1], key + "s", key.upper(), *KEYS))] = table.pop(key)
            return f"{section}.{key}"
        case 1:
            del table[key]
            return f"{section}.{key}"
    table[key] = _value(rng)
    return f"{section}.{key}"


def _value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(6 if depth < 2 else 3):
        case 0:
            return rng.choice(WORDS)
        case 1 | 2:
            return rng.choice(NUMBERS)
        case 3:
            return rng.random() < 0.5
        case 4:
            return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): _value(rng, depth + 1) for _ in range(rng.randrange(3))}


def _parts(words: list[str]) -> tuple[str, ...]:
    """The words and their parts: a message may say `hidden` of `model.hidden`."""
    # A batch is more than a client has: which, and how large.
    parts = {part for word in words for part in (word, *word.split(".")) if part.strip()}
    return tuple(parts | ({"batch"} if "batch_size" in parts else set()))


def _toml(tables: dict[str, Any]) -> str:
    """Tables as text; sections first as they are, inline below."""
    plain = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    lines = [f"{_key(key)} = {_inline(value)}" for key, value in plain.items()]
    for section, table in tables.items():
        if isinstance(table, dict):
            lines += [f"[{_key(section)}]", *(f"{_key(key)} = {_inline(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
