"""Tiny data sets in every form in which the real ones are published."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)
PARTS = {"train": 20, "test": 7}


def images(*shape):
    return {part: RNG.integers(0, 256, (count, *shape), dtype=np.uint8) for part, count in PARTS.items()}


def labels(classes):
    return {part: RNG.integers(0, classes, count, dtype=np.uint8) for part, count in PARTS.items()}


def arrays(x, **named):
    return {f"x_{part}": x[part] for part in PARTS} | {f"{n}_{p}": v[p] for n, v in named.items() for p in PARTS}


def idx(values):
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def idx_files(x, y, suffix=""):
    pack = gzip.compress if suffix else bytes
    names = {"train": "train", "test": "t10k"}
    return {f"{names[p]}-images-idx3-ubyte{suffix}": pack(idx(x[p])) for p in PARTS} | {
        f"{names[p]}-labels-idx1-ubyte{suffix}": pack(idx(y[p])) for p in PARTS
    }


def planes(x):
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def binary(x, *label_bytes):
    return np.concatenate([*(values[:, None] for values in label_bytes), planes(x)], axis=1).tobytes()


def pickled(**content):
    """A dictionary with keys of bytes, as Python 2 would have written it."""
    return pickle.dumps({key.encode(): value for key, value in content.items()}, protocol=2)


def write(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def tar_gz(top, files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def npz(**named):
    buffer = io.BytesIO()
    np.savez(buffer, **named)
    return buffer.getvalue()


def png(ink):
    """Black ink on white paper."""
    buffer = io.BytesIO()
    Image.fromarray(np.where(ink, 0, 255).astype(np.uint8)).convert("1").save(buffer, "png")
    return buffer.getvalue()


def as_json(roles):
    return json.dumps([dict(zip(("play", "role", "text"), role, strict=True)) for role in roles])
