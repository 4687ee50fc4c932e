"""Speed and memory on this machine, beside plain PyTorch, held to bars."""

from headstart.bench.running import Bench, bench, load_bench
from headstart.bench.suites import SUITES

__all__ = ["SUITES", "Bench", "bench", "load_bench"]
