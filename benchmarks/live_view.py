"""A run of about 200 rounds per second, followed by its live page and alone, taking turns.

    python -m benchmarks.live_view [--repeats 5] [--seconds 15] [--browser]

The page is that of `headstart run --watch`: a process of its own beside the run. For a browser stands a process that
asks as the page's script does, every three seconds, and fetches each new page. With `--browser` a headless Chromium has
the page open instead, which draws it too, on the same cores.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import headstart as hs
from benchmarks.common import parser

BAR = 0.02
RATE = 200
WARM = 2.0
"""Seconds of a run, and of its page's process, that are not measured: both start then."""
FIRST = 5000
"""Rounds of the run that tells how fast this machine is; it has to outlast the start."""


class Clock(hs.Callback):
    """Rounds and seconds from when the run is warm to its last chunk."""

    def __init__(self) -> None:
        self.told: list[tuple[float, int]] = []

    def on_chunk(self, progress):
        self.told.append((time.perf_counter(), progress.round))

    def rate(self) -> float:
        warm = [(at, n) for at, n in self.told if at >= self.told[0][0] + WARM]
        (first, begun), (last, done) = warm[0], warm[-1]
        return (done - begun) / (last - first)


def experiment(rounds: int) -> hs.Experiment:
    return hs.Experiment(
        hs.per_fedavg(inner_lr=0.01, outer_lr=0.01, local_steps=2, batch_size=10),
        hs.Classification(hs.MLP(inputs=(28, 28), outputs=10, hidden=(32,))),
        hs.data.mnist_small(clients=50, held_out=10),
        rounds=rounds,
        cohort=8,
        backend="vmap",
    )


def poll(address: str) -> None:
    """What the page's script does, without drawing; a line for every page."""
    seen = None
    while True:
        try:
            with urllib.request.urlopen(address.replace("/page", "/version")) as answer:
                version = answer.read()
            if version != seen:
                with urllib.request.urlopen(address) as answer:
                    print(len(answer.read()), flush=True)
                seen = version
        except OSError:
            pass  # not there yet, or no more
        time.sleep(3)


@contextmanager
def looking(address: str, browser: bool) -> Iterator[None]:
    if browser:
        chromium = shutil.which("chromium") or sys.exit("There is no chromium here.")
        with tempfile.TemporaryDirectory() as profile:
            options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
            process = subprocess.Popen(
                [chromium, *options, "--disable-background-networking", "--remote-debugging-port=0", address],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait()
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.live_view", "--poll", address], stdout=subprocess.PIPE
    )
    looking.pages = 0  # type: ignore[attr-defined]
    try:
        yield
    finally:
        process.terminate()
        out, _ = process.communicate()
        looking.pages = len(out.split())  # type: ignore[attr-defined]


def run(rounds: int, watched: bool, browser: bool) -> tuple[float, int, float]:
    """Rounds per second, pages that were fetched, and the share of a core that the page's processes took."""
    began, children = time.perf_counter(), _children_seconds()
    rate, pages = _run(rounds, watched, browser)
    return rate, pages, (_children_seconds() - children) / (time.perf_counter() - began)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(rounds: int, watched: bool, browser: bool) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as folder:
        clock, where = Clock(), Path(folder) / "run"
        if not watched:
            experiment(rounds).run(where, callbacks=[clock])
            return clock.rate(), 0
        with hs.report.Watch([where]).aside() as address, looking(address, browser):
            experiment(rounds).run(where, callbacks=[clock])
        return clock.rate(), 0 if browser else looking.pages  # type: ignore[attr-defined]


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(repeats=5)
    options.add_argument("--seconds", type=float, default=15, help="about how long a run takes")
    options.add_argument("--browser", action="store_true", help="have the page open in headless Chromium")
    options.add_argument("--poll", help="(what stands for a browser)")
    given = options.parse_args()
    if given.poll:
        return poll(given.poll)
    speed, _, _ = run(FIRST, False, False)
    rounds = int(speed * given.seconds)
    print(f"alone, to begin with: {speed:.0f} rounds/s; runs have {rounds} rounds")
    rates: dict[bool, list[float]] = {False: [], True: []}
    pages, shares = [], []
    for _ in range(given.repeats):
        for watched in (False, True):
            rate, fetched, share = run(rounds, watched, given.browser)
            rates[watched].append(rate)
            if watched:
                pages.append(fetched)
                shares.append(share)
    alone, followed = (float(np.median(rates[side])) for side in (False, True))
    pairs = [1 - with_page / without for without, with_page in zip(rates[False], rates[True], strict=True)]
    slower = float(np.median(pairs))
    print("alone    ", " ".join(f"{rate:.1f}" for rate in rates[False]), f"median {alone:.1f} rounds/s")
    print("followed ", " ".join(f"{rate:.1f}" for rate in rates[True]), f"median {followed:.1f} rounds/s")
    print(f"slower by {slower:+.2%} (median of {given.repeats} pairs, from {min(pairs):+.2%} to {max(pairs):+.2%})")
    print(f"the page, its start and what looks at it took {np.median(shares):.1%} of a core's time")
    if not given.browser:
        print(f"pages fetched in a run: {pages}")
    print(f"bar: {RATE} rounds/s or more, slower by at most {BAR:.0%}: {'met' if slower <= BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
