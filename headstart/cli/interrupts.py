"""Ctrl-C: while modules are imported at once; in a run once to stop after a chunk of rounds, twice to leave at once.

A chunk that takes longer than some seconds, or a program that is being compiled, is not waited for.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["Stop", "interruptible", "quiet_imports"]

LEFT = 130
"""The exit code, as shells have it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 10
"""So many seconds a chunk has to come to its end."""
SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Leave without a traceback where Ctrl-C comes in the middle of an import; anywhere else it is Python's own.

    An import that is cut short may come out as any error, of whoever imports. Nothing is written while modules are
    imported, so that there is nothing to put in order.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # somebody else listens, or nobody does, as in what a shell runs in the background
        return
    signal.signal(signal.SIGINT, _leave_imports)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave_imports(number: int, frame: FrameType | None) -> None:
    place = frame
    while place is not None:
        if place.f_code.co_filename.startswith("<frozen importlib"):
            _say("\nStopped.\n")
            os._exit(LEFT)
        place = place.f_back
    signal.default_int_handler(number, frame)


class Stop:
    """Whether Ctrl-C was pressed."""

    requested = False


@contextmanager
def interruptible(folder: Path, patience: float | None = PATIENCE) -> Iterator[Stop]:
    """Listen for Ctrl-C while a run is written to a folder; ``None`` waits for the end of a chunk however long it is.

    Python's own handlers wait until a compiled program returns, which may take minutes. So a thread listens on what
    the interpreter writes the moment a signal comes, and ends the process itself when a second one does, or when its
    patience ends: whatever is in the folder is whole, as after a crash.
    """
    stop = Stop()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    listening = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(reading, stop, folder, patience), daemon=True)
    listener.start()
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(listening)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(writing)  # which ends the listener
        listener.join()
        os.close(reading)


def _listen(reading: int, stop: Stop, folder: Path, patience: float | None) -> None:
    end: float | None = None
    while True:
        ready, _, _ = select.select([reading], [], [], None if end is None else max(0.0, end - time.monotonic()))
        if not ready:
            _leave(folder)
        told = os.read(reading, 1)
        if not told:
            return
        if told[0] not in SIGNALS:
            continue
        if stop.requested:
            _leave(folder)
        stop.requested = True
        end = None if patience is None else time.monotonic() + patience
        most = "" if patience is None else f", for at most {patience} s"
        _say(f"\nFinishing this chunk{most}; press Ctrl-C again to leave at once.\n")


def _leave(folder: Path) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(SHOW_CURSOR)
        sys.stdout.flush()
    _say("\nLeft at once; all up to the last checkpoint is kept.\n")
    if (folder / "run.json").exists():
        _say(f"Go on with: headstart run --resume {folder}\n")
    os._exit(LEFT)


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
