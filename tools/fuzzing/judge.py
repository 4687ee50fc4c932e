"""Run one case within this process, and say what was wrong with how it ended."""

import io
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from headstart.errors import HeadstartError

SECONDS = 120
"""The most that a case may take on a busy machine."""


class TooLongError(BaseException):
    """A case did not end."""


@dataclass(frozen=True)
class Case:
    """Something to do, and what a message has to name if that fails."""

    name: str
    do: Callable[[], Any]
    offenders: tuple[str, ...]
    check: Callable[[Any], str | None] = lambda result: None
    """What is wrong with what it gave, if it was not refused."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    case: Case
    code: int | None
    message: str
    seconds: float
    fault: str | None


def judged(case: Case) -> Verdict:
    """Run a case."""
    start = time.monotonic()
    code, message, fault = None, "", None
    try:
        with _time_limit():
            result = case.do()
        code = result[0] if isinstance(result, tuple) else 0
        message = result[1] if isinstance(result, tuple) else ""
        fault = case.check(result) if code == 0 else None
    except HeadstartError as error:
        code, message = 2, str(error)
    except MemoryError:
        # The command line says so in a message, and Python's users know it by that name.
        code, message = 1, case.offenders[0]
    except TooLongError:
        fault = f"it did not end within {SECONDS} s"
    except Exception:
        fault = traceback.format_exc(limit=-4)
    if fault is None and code not in (0, 1, 2):
        fault = f"it ended with {code}"
    if fault is None and code != 0 and not any(word and word in message for word in case.offenders):
        fault = f"its message names none of {case.offenders}: {message!r}"
    if fault is None and "Traceback" in message:
        fault = f"it shows a traceback: {message}"
    return Verdict(case, code, message, time.monotonic() - start, fault)


def command(words: Sequence[str]) -> tuple[int, str]:
    """The `headstart` command in this process: its exit code, and what it wrote to the standard error."""
    from headstart.cli.main import main

    before, errors = sys.argv, io.StringIO()
    sys.argv = ["headstart", *words]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            main()
        code = 0
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    finally:
        sys.argv = before
    return code, errors.getvalue()


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
