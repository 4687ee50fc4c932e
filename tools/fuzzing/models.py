"""Model files that were changed: bytes flipped, cut and added; descriptions forged under a digest that fits."""

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import headstart as hs
from tools.fuzzing.judge import Case

ROWS = {"size": [1.0, None, -250.0, 40.0], "age": [30, 40, 50, 60], "colour": ["red", "green", None, "mauve"]}
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 10**6, 10**12, 2**64, 1e308, -0.5, "", "x", "mlp", "../../etc", "a" * 10_000, [], {}, [0],
    [-1], [10**9, 10**9], {"import": "os.system"}, [[]], ["é\u202e"],
)  # fmt: skip


def models(rng: random.Random, folder: Path, labels: tuple[str, ...] = ("likes", "score")) -> Iterator[Case]:
    """Endlessly many, of a classification and a regression that are trained first."""
    originals = [trained(folder, label) for label in labels]
    number = 0
    while True:
        number += 1
        content, right = rng.choice(originals)
        path = folder / f"model{number}.safetensors"
        if rng.random() < 0.5:
            changed, said = _changed(rng, content)
            forged = False
        else:
            changed, said = _forged(rng, content)
            forged = True
        path.write_bytes(changed)
        yield _case(path, said, None if forged else right)


def trained(folder: Path, label: str) -> tuple[bytes, np.ndarray]:
    """A model file, and what it predicts."""
    rng = np.random.default_rng(0)
    who = np.repeat([f"p{i}" for i in range(4)], 20)
    size, age = 100 * rng.normal(size=80), rng.integers(18, 80, 80)
    colour = rng.choice(np.array(["red", "green", None], object), 80)
    columns: dict[str, Any] = {"who": who, "size": size, "age": age, "colour": colour}
    columns[label] = np.where(size > 0, "yes", "no") if label == "likes" else 1000 + size + age
    small = ["train.rounds=2", "train.backend=vmap", "model.hidden=[4]", "evaluate.steps=[0,1]", "baselines={}"]
    experiment = hs.Experiment.from_table(columns, client="who", label=label, settings=small, tune=False)
    run = experiment.run(folder / f"run-{label}")
    assert run.record.path is not None
    path = run.record.path / "per-fedavg" / "model.safetensors"
    return path.read_bytes(), hs.load(path).predict(ROWS)


def _case(path: Path, said: str, right: np.ndarray | None) -> Case:
    def check(predicted: Any) -> str | None:
        same = right is None or np.array_equal(predicted, right)
        return None if same else f"it predicts {predicted} instead of {right}"

    return Case(said, lambda: hs.load(path).predict(ROWS), (path.name, "adapt"), check)


def _changed(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    changed = bytearray(content)
    said = []
    for _ in range(rng.choice((1, 1, 1, 3))):
        place = rng.randrange(len(changed)) if rng.random() < 0.5 else rng.randrange(min(3000, len(changed)))
        match rng.randrange(5):
            case 0 | 1:
                changed[place] ^= 1 << rng.randrange(8)
                said.append(f"bit at {place}")
            case 2:
                del changed[place : place + rng.choice((1, 8, 10**9))]
                said.append(f"cut at {place}")
            case 3:
                changed[place:place] = rng.randbytes(rng.choice((1, 8, 100)))
                said.append(f"added at {place}")
            case 4:
                changed += rng.randbytes(rng.choice((1, 8, 100)))
                said.append("added at the end")
        if not changed:
            break
    return bytes(changed), ", ".join(said)


def _forged(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    """Another description, or other tensors, with a digest that fits."""
    length = int.from_bytes(content[:8], "little")
    header, arrays = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.pop("__metadata__")
    description = json.loads(metadata["headstart"])
    said = [_change(rng, description if rng.random() < 0.8 else header) for _ in range(rng.choice((1, 1, 2, 4)))]
    text = json.dumps(description, sort_keys=True)
    digest = hashlib.sha256(json.dumps([text, header], sort_keys=True).encode())
    digest.update(arrays)
    metadata = {"headstart": text, "digest": digest.hexdigest()}
    head = json.dumps({"__metadata__": metadata, **header}).encode()
    return len(head).to_bytes(8, "little") + head + arrays, f"forged {said}"


def _change(rng: random.Random, table: Any) -> str:
    """Change something somewhere, and say where."""
    where = ""
    while True:
        keys = list(table) if isinstance(table, dict) else list(range(len(table)))
        if not keys:
            return where
        key = rng.choice(keys)
        where += f".{key}"
        below = table[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.85:
            table = below
            continue
        match rng.randrange(6):
            case 0 if isinstance(table, dict):
                del table[key]
            case 1 if isinstance(table, dict):
                table[f"{key}s"] = table.pop(key)
            case 2 if isinstance(below, (int, float)) and not isinstance(below, bool):
                table[key] = rng.choice((-below, below * 2, below + 1, below * 1e6, 0))
            case 3 if isinstance(table, list):
                table.extend(table * rng.choice((1, 50)))
            case _:
                table[key] = rng.choice(VALUES)
        return f"{where} = {table.get(key) if isinstance(table, dict) else table!r:.60}"
