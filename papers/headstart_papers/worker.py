"""A process that runs units: orders come in as lines of JSON, and what happens goes out as such."""

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Work until there are no more orders. When the process that gives them dies, this one does too."""
    orders: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that nothing else is taken for a message

    def tell(**message: Any) -> None:
        told.write(json.dumps(message) + "\n")

    _prepare()
    tell(event="ready")
    while (line := orders.get()) is not None:
        _work(json.loads(line), tell)


def _listen(orders: "queue.Queue[str | None]") -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            orders.put(None)
            return
        orders.put(line)
    # The other end is gone without saying stop: it was killed. A unit goes on from its checkpoint next time.
    os._exit(1)


def _prepare() -> None:
    cores = os.environ.get("HEADSTART_CORES")
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from headstart.devices import keep_compiled_programs

    keep_compiled_programs()


def _work(order: dict[str, Any], tell: Any) -> None:
    from headstart.errors import HeadstartError
    from headstart.simulate import Callback, Progress
    from headstart_papers.record import Unit
    from headstart_papers.store import Store
    from headstart_papers.unit import run_unit

    class Telling(Callback):
        def on_chunk(self, progress: Progress) -> None:
            tell(event="progress", done=progress.round, rounds=progress.rounds)

    unit = Unit(**{**order["unit"], "seeds": tuple(order["unit"]["seeds"])})
    store = Store(Path(order["folder"]))
    try:
        result = run_unit(unit, store.checkpoint(unit), order["checkpoint_seconds"], [Telling()])
        store.write(unit, result)
    except HeadstartError as error:
        tell(event="refused", problem=str(error))
    except Exception as error:
        traceback.print_exc()
        tell(event="failed", problem=f"{type(error).__name__}: {error}")
    else:
        tell(event="finished", took=result["took"])


if __name__ == "__main__":
    main()
