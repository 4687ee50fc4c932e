"""(j) Start-up: from the start of a process to the first rounds of the demo, with and without compiled programs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headstart.bench.cases import Bar, Case, Settings, Side

__all__ = ["TITLE", "cases"]

TITLE = "Start-up: process start to the first rounds of the demo, evaluation before them included"
FIRST_ROUNDS = """
import headstart as hs

class Stop(hs.Callback):
    def on_chunk(self, progress):
        return "the first rounds are done"

hs.Experiment.from_toml(None).run(callbacks=[Stop()])
"""


def cases(settings: Settings) -> Iterator[Case]:
    """Cold, with nothing compiled yet, and warm."""
    del settings
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(Path(folder)), **KEEPING}

        def ours() -> Side:
            return Side(lambda: subprocess.run([sys.executable, "-c", FIRST_ROUNDS], env=environment, check=True))

        yield Case("cold", "start", ours, bars=(Bar("seconds", 5),), once=True)
        yield Case("warm", "start", ours, bars=(Bar("seconds", 2.5),))


KEEPING = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
"""As the command line keeps compiled programs."""
