"""Images: a folder tree of client/label/*.png, and images inside tables."""

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.errors import UsageError

__all__ = ["IMAGE_ENDINGS", "image_files", "is_picture", "pictures_from_bytes", "read_pictures"]

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg")

GRAY = {"1", "L", "I;16", "I", "F", "LA"}


def image_files(root: Path) -> tuple[list[Path], list[str], list[str]]:
    """The images of a tree client/label/image, whose each is, and what it shows."""
    files: list[Path] = []
    clients: list[str] = []
    labels: list[str] = []
    for client in _folders(root):
        kinds = _folders(client)
        loose = [path for path in sorted(client.iterdir()) if path.suffix.lower() in IMAGE_ENDINGS]
        if loose:
            raise UsageError(
                f"{loose[0]} lies in a client's folder, not in a label's.", "Arrange images as client/label/image.png."
            )
        before = len(files)
        for label in kinds:
            for path in sorted(label.iterdir()):
                if path.suffix.lower() in IMAGE_ENDINGS:
                    files.append(path)
                    clients.append(client.name)
                    labels.append(label.name)
        if len(files) == before:
            raise UsageError(
                f"{client} has no images.", f"Give the client images ({', '.join(IMAGE_ENDINGS)}), or remove it."
            )
    if not files:
        raise UsageError(f"{root} has no images.", "Arrange images as client/label/image.png.")
    return files, clients, labels


def read_pictures(files: Sequence[Path]) -> np.ndarray:
    """Image files of one size as bytes: (n, height, width) where all are gray, otherwise (n, height, width, 3)."""
    return _decoded(files, [str(path) for path in files])


def pictures_from_bytes(column: pa.ChunkedArray, places: Callable[[int], str]) -> np.ndarray:
    """Images that a table holds as encoded bytes."""
    content = column.combine_chunks().field("bytes").to_pylist()
    absent = next((i for i, value in enumerate(content) if value is None), None)
    if absent is not None:
        raise UsageError(f"{places(absent)} has no image.", "Leave the row out.")
    return _decoded([io.BytesIO(value) for value in content], [places(i) for i in range(len(content))])


def is_picture(kind: pa.DataType) -> bool:
    """Whether a column holds encoded images, as Hugging Face datasets store them."""
    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("Reading images needs Pillow.", "Install it: pip install pillow.") from error
    return Image


def _decoded(files: Sequence[Any], names: Sequence[str]) -> np.ndarray:
    pillow = _pillow()

    def header(i: int) -> tuple[tuple[int, int], bool]:
        return _opened(pillow, files[i], names[i], lambda image: (image.size, image.mode in GRAY))

    with ThreadPoolExecutor() as pool:
        headers = list(pool.map(header, range(len(files))))
        (width, height), _ = headers[0]
        other = next((i for i, (size, _) in enumerate(headers) if size != (width, height)), None)
        if other is not None:
            (w, h), _ = headers[other]
            raise UsageError(
                f"{names[other]} is {w} x {h} pixels, but {names[0]} is {width} x {height}.",
                "Bring all images to one size.",
            )
        gray = all(is_gray for _, is_gray in headers)
        pixels = np.empty((len(files), height, width, *(() if gray else (3,))), np.uint8)

        def decode(i: int) -> None:
            mode = "L" if gray else "RGB"
            pixels[i] = _opened(pillow, files[i], names[i], lambda image: np.asarray(image.convert(mode)))

        list(pool.map(decode, range(len(files))))
    return pixels


def _opened(pillow: ModuleType, file: Any, name: str, use: Callable[[Any], Any]) -> Any:
    try:
        if isinstance(file, io.BytesIO):
            file.seek(0)
        with pillow.open(file) as image:
            return use(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{name} is no readable image: {error}.", "Replace or remove the file.") from error
