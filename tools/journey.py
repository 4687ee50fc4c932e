"""A stranger's journey: install, train, look, adapt to a new client, predict and export, for two tables.

    make journey                                    into a fresh environment, as a stranger would
    .venv/bin/python tools/journey.py --installed   with the environment that runs this

The tables are written here, as people have them: a phone's sensors (20 people, an activity to predict) and deliveries
(20 depots, minutes to predict), with ids, times, remarks, gaps and words. Nothing is set by hand. Whatever a command
says is checked: its exit code, its lines of at most 80 columns, its files, and how good the predictions are. Needs
nothing but Python's own library.
"""

import argparse
import csv
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
MOST_COMMANDS = 7
MOST_SECONDS = 8 * 60
WIDTH = 80

Row = dict[str, Any]


@dataclass
class Story:
    """A table, a client that comes later, and what is expected of the model."""

    name: str
    client: str
    label: str
    new_client: str
    rows: list[Row]
    newcomer: list[Row]
    good: Callable[["Story", list[Row]], tuple[str, bool]]
    """Says how good predictions for the newcomer are, and whether that will do."""
    known: int = 20
    """Rows of the newcomer that have labels."""
    files: dict[str, Path] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """The files that a person would have."""
        whole = list(self.rows[0])
        unlabelled = [name for name in whole if name != self.label]
        for name, rows, columns in (
            ("table", self.rows, whole),
            ("few", self.newcomer[: self.known], whole),
            ("later", self.newcomer[self.known :], unlabelled),
        ):
            self.files[name] = folder / f"{self.name if name == 'table' else f'{self.new_client}_{name}'}.csv"
            with self.files[name].open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, extrasaction="ignore")
                writer.writeheader()
                writer.writerows(rows)


def activities(seed: int = 7) -> Story:
    """Sensors of 20 people: what they do; people differ in pace, pulse and the way they carry a phone."""
    rng = random.Random(seed)
    means = {
        "walk": (1.4, 105, 1.1, 0.3),
        "run": (3.0, 150, 2.6, 0.8),
        "cycle": (5.5, 130, 0.8, -0.6),
        "stairs": (0.7, 128, 1.5, 0.7),
        "rest": (0.4, 78, 0.4, -0.1),
    }

    def rows_of(person: str) -> list[Row]:
        pace, pulse, shake, tilt = rng.gauss(1, 0.25), rng.gauss(0, 18), rng.gauss(1, 0.3), rng.gauss(0, 0.8)
        phone, age, sign = rng.choice(["Pixel", "Galaxy", "iPhone"]), rng.randint(18, 75), rng.choice([-1, 1])
        rows = []
        for i in range(60):
            activity = rng.choices(list(means), [0.35, 0.2, 0.15, 0.1, 0.2])[0]
            speed, heart, bounce, lean = means[activity]
            rows.append(
                {
                    "person": person,
                    "session_id": f"{rng.getrandbits(48):012x}",
                    "recorded_at": f"2026-0{1 + i % 9}-{1 + i % 28:02d} {i % 24:02d}:{rng.randrange(60):02d}:00",
                    "phone": phone,
                    "age": age,
                    "speed": round(speed * pace * rng.lognormvariate(0, 0.25), 3),
                    "heart_rate": "" if rng.random() < 0.15 else round(rng.gauss(heart + pulse, 9)),
                    "bounce": round(bounce * shake * rng.lognormvariate(0, 0.3), 4),
                    "lean": round(sign * lean + tilt + rng.gauss(0, 0.35), 4),
                    "surface": rng.choice(["asphalt", "gravel", "grass", ""]),
                    "remark": rng.choice(["", "", f"note {rng.randrange(10**6)}"]),
                    "activity": activity,
                }
            )
        return rows

    people = [f"person {i:02d}" for i in range(1, 21)]
    rows = [row for person in people for row in rows_of(person)]
    rng.shuffle(rows)
    return Story("activities", "person", "activity", "maria", rows, rows_of("maria"), _accuracy)


def deliveries(seed: int = 11) -> Story:
    """Deliveries of 20 depots: how many minutes each takes; depots differ in traffic and habits."""
    rng = random.Random(seed)

    def rows_of(depot: str) -> list[Row]:
        start, per_km, per_parcel, rain = rng.gauss(14, 6), rng.gauss(2.2, 0.6), rng.gauss(1.5, 0.5), rng.gauss(6, 4)
        rows = []
        for i in range(50):
            distance = rng.lognormvariate(1.6, 0.7)
            parcels = rng.randint(1, 12)
            weather = rng.choices(["dry", "rain", "snow", ""], [0.6, 0.25, 0.05, 0.1])[0]
            minutes = start + per_km * distance + per_parcel * parcels + rain * (weather in ("rain", "snow"))
            rows.append(
                {
                    "order_id": f"D-{rng.randrange(10**8):08d}",
                    "depot": depot,
                    "date": f"2026-{1 + i % 12:02d}-{1 + i % 28:02d}",
                    "distance_m": round(1000 * distance),
                    "parcels": parcels,
                    "weight_kg": "" if rng.random() < 0.1 else round(rng.paretovariate(1.3), 2),
                    "weather": weather,
                    "express": rng.choice(["true", "false"]),
                    "country": "NO",
                    "minutes": round(max(3.0, minutes + rng.gauss(0, 4)), 1),
                }
            )
        return rows

    depots = [f"Depot {name}" for name in "ABCDEFGHIJKLMNOPQRST"]
    rows = [row for depot in depots for row in rows_of(depot)]
    return Story("deliveries", "depot", "minutes", "zurich", rows, rows_of("zurich"), _error)


def _accuracy(story: Story, predicted: list[Row]) -> tuple[str, bool]:
    truth = [row[story.label] for row in story.newcomer[story.known :]]
    right = [row[f"predicted_{story.label}"] == label for row, label in zip(predicted, truth, strict=True)]
    usual = max(truth.count(label) for label in set(truth)) / len(truth)
    accuracy = sum(right) / len(right)
    sums = [sum(float(row[name]) for name in row if name.startswith("probability_")) for row in predicted]
    whole = all(abs(total - 1) < 1e-3 for total in sums)
    return f"accuracy {accuracy:.0%} (most frequent label {usual:.0%})", accuracy > 0.85 and whole


def _error(story: Story, predicted: list[Row]) -> tuple[str, bool]:
    truth = [row[story.label] for row in story.newcomer[story.known :]]
    errors = [float(row[f"predicted_{story.label}"]) - label for row, label in zip(predicted, truth, strict=True)]
    rmse = math.sqrt(sum(error**2 for error in errors) / len(errors))
    mean = sum(truth) / len(truth)
    spread = math.sqrt(sum((label - mean) ** 2 for label in truth) / len(truth))
    return f"RMSE {rmse:.2f} minutes (deviation of the label {spread:.2f})", rmse < 0.6 * spread


class Journey:
    """Commands as a stranger types them, each of which is timed and looked at."""

    def __init__(self, folder: Path, command: str):
        self.folder, self.command = folder, command
        self.commands, self.seconds, self.faults = 0, 0.0, []

    def type(self, *words: str) -> str:
        """One command; returns what it printed."""
        self.commands += 1
        shown = " ".join(f"'{word}'" if " " in word else word for word in words)
        print(f"\n$ {shown}", flush=True)
        start, before = time.monotonic(), _processor_seconds()
        arguments = [self.command, *words[1:]] if words[0] == "headstart" else list(words)
        environment = {**os.environ, "COLUMNS": str(WIDTH)}
        done = subprocess.run(
            arguments, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=2 * MOST_SECONDS
        )
        seconds = time.monotonic() - start
        self.seconds += seconds
        print(done.stdout + done.stderr, end="")
        print(f"[{seconds:.1f} s, {_processor_seconds() - before:.1f} s of processors]", flush=True)
        self.check(done.returncode == 0, f"`{shown}` ended with {done.returncode}")
        self.check("Traceback" not in done.stdout + done.stderr, f"`{shown}` showed a traceback")
        if words[0] == "headstart" and words[1] in ("run", "adapt"):
            wide = [line for line in done.stdout.splitlines() if len(line) > WIDTH and str(self.folder) not in line]
            self.check(not wide, f"`{shown}` printed a line of more than {WIDTH} columns: {wide[:1]}")
        return done.stdout

    def check(self, good: bool, fault: str) -> None:
        """Remember what was wrong."""
        if not good:
            self.faults.append(fault)
            print(f"!! {fault}", flush=True)


def _processor_seconds() -> float:
    """What commands have taken of processors so far, which other people's work beside them does not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def walk(journey: Journey, story: Story) -> None:
    """From the table to what a new client's own model predicts."""
    story.write(journey.folder)
    named = {name: path.name for name, path in story.files.items()}
    run = f"runs/{story.name}"
    said = journey.type(
        "headstart", "run", "--data", named["table"], "--client", story.client, "--label", story.label, "--out", run
    )
    journey.check("left out" in said, "the columns that were left out are not named")
    model, mine = f"{run}/per-fedavg/model.safetensors", f"{story.new_client}.safetensors"
    card = journey.type("headstart", "inspect", model)
    journey.check(
        story.label in card and "How good" in card, "the card does not say what the model predicts, or how well"
    )
    said = journey.type("headstart", "adapt", model, "--data", named["few"], "--out", mine)
    journey.check("held back" in said, "adapting does not say what it did")
    out = f"{story.new_client}_predicted.csv"
    journey.type("headstart", "predict", mine, "--data", named["later"], "--out", out)
    exported = f"{story.new_client}.onnx"
    journey.type("headstart", "export", mine, "--format", "onnx", "--out", exported)
    for file in (f"{run}/comparison.png", model, mine, out, exported, f"{exported}.json"):
        journey.check((journey.folder / file).is_file(), f"there is no {file}")
    if (journey.folder / out).is_file():
        with (journey.folder / out).open(newline="", encoding="utf-8") as file:
            predicted = list(csv.DictReader(file))
        words, good = story.good(story, predicted)
        print(f"\nThe new client's own model, on rows nobody has seen: {words}")
        journey.check(good, f"{story.name}: {words} will not do")
    if (journey.folder / f"{exported}.json").is_file():
        said = json.loads((journey.folder / f"{exported}.json").read_text())
        journey.check("columns" in said["input"], "the exported model's inputs are not named")


def main() -> int:
    """Walk both stories, and say what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", action="store_true", help="use the environment that runs this")
    parser.add_argument("--keep", type=Path, help="a folder for tables, runs and models, which is kept")
    parser.add_argument("--only", choices=["activities", "deliveries"])
    options = parser.parse_args()
    stories = [story for story in (activities(), deliveries()) if options.only in (None, story.name)]
    faults = []
    with tempfile.TemporaryDirectory(prefix="journey-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        here = Path(sys.executable).parent
        installing = 0.0
        if not options.installed:
            here = folder / "environment" / "bin"
            subprocess.run([sys.executable, "-m", "venv", str(here.parent)], check=True)
            install = Journey(folder, "")
            install.type(str(here / "pip"), "install", "--quiet", f"{PROJECT}[plot,export]")
            installing, faults = install.seconds, install.faults
        for story in stories:
            journey = Journey(folder, str(here / "headstart"))
            walk(journey, story)
            commands, seconds = journey.commands + 1, journey.seconds + installing
            print(f"\n{story.name}: {commands} commands, {seconds:.0f} s", flush=True)
            journey.check(commands <= MOST_COMMANDS, f"{commands} commands are more than {MOST_COMMANDS}")
            journey.check(seconds <= MOST_SECONDS, f"{seconds:.0f} s are more than {MOST_SECONDS}")
            faults += journey.faults
    print("\nThe journey went well." if not faults else "\nFaults:\n" + "\n".join(f"- {fault}" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
