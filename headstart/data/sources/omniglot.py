"""Omniglot: characters of 50 alphabets, each drawn by 20 people."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from headstart.data.samples import Samples
from headstart.data.sources.formats import members, npz, reading
from headstart.data.sources.locate import contents
from headstart.data.sources.source import Form, Remote, Source
from headstart.errors import UsageError

__all__ = ["OMNIGLOT", "omniglot"]

DRAWN, SIZE = 105, 28
INK = 3 / 8
"""A pixel is ink if more than this share of its box is. Strokes are mostly three pixels wide; at the worst a box of
3.75 sees 40% of one, so that no such stroke breaks."""
PARTS = ("images_background", "images_evaluation")
DRAWING = re.compile(r"(?:^|/)([^/]+)/(character\d+)/\d+_(\d+)\.png$")


@dataclass(frozen=True)
class _Drawings:
    x: np.ndarray
    alphabet: np.ndarray
    character: np.ndarray
    """Its name within the alphabet."""
    drawer: np.ndarray
    evaluation: np.ndarray


def omniglot(folder: str | Path | None = None) -> Samples:
    """32,460 drawings of 28x28 bytes, 20 of each of 1,623 characters; ink is 255.

    Classes are the characters. Columns: ``alphabet``, ``character`` ("alphabet/character01"), ``drawer`` (1 to 20), and
    ``evaluation``, true for the 20 alphabets that are for evaluation.
    """
    data = contents(OMNIGLOT, folder)
    character = np.char.add(np.char.add(data.alphabet, "/"), data.character)
    first = np.unique(character, return_index=True)[1]
    classes = character[np.sort(first)]  # in the order in which they appear: background first
    order = np.argsort(classes)
    y = order[np.searchsorted(classes, character, sorter=order)].astype(np.int32)
    columns = {
        "alphabet": data.alphabet,
        "character": character,
        "drawer": data.drawer.astype(np.int32),
        "evaluation": data.evaluation.astype(bool),
    }
    return Samples("omniglot", data.x, y, tuple(map(str, classes)), columns=columns, source=OMNIGLOT.origin)


def _read_npz(folder: Path) -> _Drawings:
    path = folder / "omniglot.npz"
    arrays = npz(path, "x", "alphabet", "alphabet_names", "char_in_alphabet", "drawer", "evaluation")
    with reading(path):
        character = np.char.add("character", np.char.zfill(arrays["char_in_alphabet"].astype(str), 2))
        alphabet = arrays["alphabet_names"][arrays["alphabet"]]
        return _Drawings(arrays["x"] * np.uint8(255), alphabet, character, arrays["drawer"], arrays["evaluation"])


def _read_images(suffix: str, folder: Path) -> _Drawings:
    from PIL import Image  # only this form needs it

    images: list[np.ndarray] = []
    facts = []
    for evaluation, part in enumerate(PARTS):
        path = folder / f"{part}{suffix}"
        with reading(path):
            before = len(images)
            for named, stream in _drawings(path):
                with Image.open(stream) as image:
                    if image.size != (DRAWN, DRAWN):
                        raise ValueError(f"{named[0]} is {image.size[0]}x{image.size[1]} pixels and not 105x105")
                    images.append(np.packbits(np.asarray(image.convert("L")) < 128))
                facts.append((*named[1:], evaluation))
            if len(images) == before:
                raise UsageError(
                    f"{path} has no drawings.", "Drawings are called <alphabet>/character01/0001_01.png and so on."
                )
    ink = np.unpackbits(np.stack(images), axis=1, count=DRAWN * DRAWN).reshape(-1, DRAWN, DRAWN)
    alphabet, character, drawer, evaluations = map(np.array, zip(*facts, strict=True))
    return _Drawings(_shrunk(ink), alphabet, character, drawer.astype(int), evaluations)


def _drawings(path: Path) -> Iterator[tuple[tuple[str, str, str, str], IO[bytes]]]:
    """Each drawing's path, alphabet, character and drawer, in this order."""
    for name, stream in members(path, lambda name: DRAWING.search(name) is not None):
        found = DRAWING.search(name)
        assert found is not None
        yield (name, found[1], found[2], found[3]), stream


def _shrunk(ink: np.ndarray) -> np.ndarray:
    """Each pixel is the mean of a box of 3.75 x 3.75, made black or white."""
    edges = np.arange(SIZE + 1) * DRAWN / SIZE
    overlap = np.minimum(edges[1:, None], np.arange(1, DRAWN + 1)) - np.maximum(edges[:-1, None], np.arange(DRAWN))
    box = (np.clip(overlap, 0, None) * SIZE / DRAWN).astype(np.float32)
    result = np.empty((len(ink), SIZE, SIZE), np.uint8)
    for start in range(0, len(ink), 1024):
        block = ink[start : start + 1024].astype(np.float32)
        result[start : start + 1024] = (box @ block @ box.T > INK) * np.uint8(255)
    return result


OMNIGLOT = Source(
    "omniglot",
    omniglot,
    "characters of 50 alphabets by 20 people, 32,460 drawings of 28x28 in 1,623 classes",
    "Lake, Salakhutdinov, Tenenbaum: Human-level concept learning through probabilistic program induction, "
    "Science 2015.",
    "MIT",
    (
        Form(("omniglot.npz",), _read_npz),
        Form(PARTS, partial(_read_images, "")),
        Form(tuple(f"{part}.zip" for part in PARTS), partial(_read_images, ".zip")),
    ),
    ("omniglot-py", "omniglot/python", "python", "raw"),
    # Checksums as TensorFlow Datasets records them.
    tuple(
        Remote(
            f"{part}.zip",
            (
                f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{part}.zip",
                f"https://github.com/brendenlake/omniglot/raw/master/python/{part}.zip",
            ),
            f"sha256:{sha256}",
            size,
        )
        for part, sha256, size in (
            (PARTS[0], "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640", 9_464_212),
            (PARTS[1], "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee", 6_462_886),
        )
    ),
)
