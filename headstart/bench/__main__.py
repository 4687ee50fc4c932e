"""One suite in this process, a line of JSON for every case: what `headstart bench` starts."""

import json
import sys
from pathlib import Path

from headstart.bench.cases import Settings
from headstart.bench.measure import measured
from headstart.bench.suites import suite
from headstart.bench.turns import cores
from headstart.devices import use_cpu_devices


def main() -> None:
    """Measure the suite that is named; its settings may follow as JSON."""
    name, *rest = sys.argv[1:]
    settings = Settings(**json.loads(rest[0])) if rest else Settings()
    settings = settings._replace(data=None if settings.data is None else Path(settings.data))
    use_cpu_devices(cores())
    for case in suite(name).cases(settings):
        print(json.dumps(measured(case, settings)), flush=True)


if __name__ == "__main__":
    main()
