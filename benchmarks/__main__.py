"""Run every benchmark: python -m benchmarks [--data DIR]."""

import subprocess
import sys

WITH_DATA = ("per_fedavg_round", "clients_scaling", "sine_iteration", "moml_iteration")
GENERATED = ("memory_store", "million_clients", "table_loading", "curvature_estimate", "conv_episode", "user_cnn")

for name in (*WITH_DATA, *GENERATED):
    print(f"== {name}", flush=True)
    options = sys.argv[1:] if name in WITH_DATA else []
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
