"""Run every benchmark: python -m benchmarks [--data DIR]."""

import subprocess
import sys

NAMES = ("per_fedavg_round", "clients_scaling", "sine_iteration", "moml_iteration", "memory_store")

for name in NAMES:
    print(f"== {name}", flush=True)
    options = sys.argv[1:] if name != "memory_store" else []
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
