"""Shakespeare's plays: every role is a client, who predicts its next character."""

import json
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headstart.core.checks import whole
from headstart.data.samples import Samples
from headstart.data.sources.formats import npz, reading, within
from headstart.data.sources.locate import contents
from headstart.data.sources.source import Form, Source
from headstart.errors import UsageError
from headstart.problems import Examples

__all__ = ["CHARACTERS", "SHAKESPEARE", "shakespeare"]

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters that the LEAF benchmark tells apart; any other is read as a space."""

CODES = np.full(256, CHARACTERS.index(" "), np.uint8)
CODES[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(len(CHARACTERS), dtype=np.uint8)


class Role(NamedTuple):
    """Everything that one character of a play says."""

    play: str
    name: str
    text: str


def shakespeare(
    context: int = 10, min_samples: int = 1, folder: str | Path | None = None, max_samples: int | None = None
) -> Samples:
    """The next character of a role from the ``context`` characters before it.

    ``x`` are the characters' codes, which become one-hot vectors when a batch is drawn; no window reaches into another
    role. Columns: ``play``, and ``role`` ("play/role"). Roles with fewer than ``min_samples`` windows are left out,
    and of those with more than ``max_samples`` so many are taken, evenly spaced.
    """
    whole("context", context, 1)
    whole("min_samples", min_samples, 1)
    if max_samples is not None:
        whole("max_samples", max_samples, min_samples)
    roles = [role for role in contents(SHAKESPEARE, folder) if len(role.text) - context >= min_samples]
    if not roles:
        raise UsageError(
            f"No role of shakespeare has {min_samples} windows of {context} characters.",
            "Set min_samples or context to less.",
        )
    lengths = np.array([len(role.text) for role in roles])
    counts = lengths - context if max_samples is None else np.minimum(lengths - context, max_samples)
    text = re.sub(r"[^\x00-\xff]", "\0", "".join(role.text for role in roles)).encode("latin1")
    codes = CODES[np.frombuffer(text, np.uint8)]
    # A window can begin at every character but the last ones of each role: one gather, and no text is cut in Python.
    rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(np.cumsum(lengths) - lengths, counts) + rank * np.repeat(lengths - context, counts) // np.repeat(
        counts, counts
    )
    columns = {
        "play": np.repeat(np.array([role.play for role in roles], object), counts),
        "role": np.repeat(np.array([f"{role.play}/{role.name}" for role in roles], object), counts),
    }
    return Samples(
        "shakespeare",
        np.lib.stride_tricks.sliding_window_view(codes, context)[begins],
        codes[begins + context].astype(np.int32),
        tuple(CHARACTERS),
        columns=columns,
        transform=one_hot_characters,
        source=SHAKESPEARE.origin,
    )


def one_hot_characters(batch: Examples) -> Examples:
    """Codes of characters as one-hot vectors, in the precision of the run."""
    x = jax.nn.one_hot(batch.x, len(CHARACTERS), dtype=jnp.result_type(float))
    return Examples(x, batch.y.astype(jnp.int32))


def _read_json(name: str, folder: Path) -> list[Role]:
    path = folder / name
    if path.suffix == ".npz":
        content = str(npz(path, "json")["json"])
    else:
        with reading(path):
            content = path.read_text("utf-8")
    with reading(path):
        roles = [Role(entry["play"], entry["role"], entry["text"]) for entry in json.loads(content)]
        if not roles or not all(isinstance(part, str) for role in roles for part in role):
            raise ValueError('it has to be a list of {"play": ..., "role": ..., "text": ...}')
        return roles


def _read_works(name: str, folder: Path) -> list[Role]:
    """The complete works as Project Gutenberg published them in 1994."""
    path = folder / name
    if path.suffix == ".zip":
        data = within(path, ("100.txt",), lambda stream: stream.read())["100.txt"]
    else:
        with reading(path):
            data = path.read_bytes()
    roles = _roles(data.decode("latin1"))
    if not roles:
        raise UsageError(
            f"{path} has no plays in the layout of Project Gutenberg's edition of 1994 "
            "('by William Shakespeare' below a title, speakers indented by two spaces, what they say by four).",
            f"Later editions are laid out in other ways. {SHAKESPEARE.by_hand}",
        )
    return roles


BYLINE = re.compile(r"^\s*by William Shakespeare\b")
NOTICE = re.compile(r"<<.*?>>", re.DOTALL)
SCENE = re.compile(r"^\s*(ACT|SCENE)\b")
SPEAKER = re.compile(r"^  ((?:\d\. )?[A-Z][A-Za-z'-]*(?: [A-Za-z'-]+){0,4})\. +(\S.*)$")
SPOKEN = re.compile(r"^    (\S.*)$")
SET_APART = re.compile(r" {3,}.*$")
BRACKETED = re.compile(r" *\[[^][]{0,200}\] *")
"""Like what is set apart at the end of a line, a note for the stage."""
NOT_INDENTED = "THE COMEDY OF ERRORS"
"""The one play in which everything stands two columns further to the left."""


def _roles(works: str) -> list[Role]:
    """Roles of a collection of plays; a work without scenes is a poem."""
    lines = NOTICE.sub("", works.replace("\r\n", "\n")).split("\n")
    starts = [number for number, line in enumerate(lines) if BYLINE.match(line)]
    roles = []
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        title = next((line.strip() for line in reversed(lines[max(0, start - 8) : start]) if line.strip()), "")
        play = lines[start + 1 : end]
        if any(map(SCENE.match, play)):
            spoken = _spoken([f"  {line}" for line in play] if title == NOT_INDENTED else play)
            roles += [Role(title, name, text) for name, text in spoken.items()]
    return roles


def _spoken(play: list[str]) -> dict[str, str]:
    """What each speaker of a play says, notes for the stage left out."""
    lines: dict[str, list[str]] = {}
    speaker = None
    for line in play:
        if line.strip() == "THE END":
            break
        if SCENE.match(line):
            speaker = None
        elif begun := SPEAKER.match(line):
            speaker = begun[1].upper()
            lines.setdefault(speaker, []).append(SET_APART.sub("", begun[2].rstrip()))
        elif speaker and (found := SPOKEN.match(line)):
            lines[speaker].append(SET_APART.sub("", found[1].rstrip()))
    return {name: BRACKETED.sub(" ", "\n".join(said)).strip() for name, said in lines.items()}


SHAKESPEARE = Source(
    "shakespeare",
    shakespeare,
    "characters of Shakespeare's plays by role, 80 classes",
    "Shakespeare's plays; by role as in Caldas et al.: LEAF: a benchmark for federated settings, 2018.",
    "public domain",
    (
        Form(("shakespeare.npz",), partial(_read_json, "shakespeare.npz")),
        Form(("shakespeare.json",), partial(_read_json, "shakespeare.json")),
        *(
            Form((name,), partial(_read_works, name))
            for name in ("1994-01-100.zip", "100.txt", "t8.shakespeare.txt", "raw_data.txt")
        ),
    ),
    ("raw_data", "data/raw_data"),
    # No checksum of the edition is published, so what a server sends could not be told from anything else.
    by_hand="Project Gutenberg has the edition of 1994 at "
    "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip; no checksum of it is known.",
)
