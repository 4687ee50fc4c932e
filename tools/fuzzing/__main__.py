"""Run many cases, and print those that ended badly."""

import argparse
import random
import resource
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import jax

from tools.fuzzing.configurations import configurations
from tools.fuzzing.judge import judged
from tools.fuzzing.models import models
from tools.fuzzing.tables import tables

SLOW = 20
MOST_MEMORY = 16 * 2**30
"""Of addresses: whoever asks for more is told so, rather than brings the machine down."""
KINDS = {"configurations": configurations, "tables": tables, "models": models}


def main() -> int:
    """Returns 1 where a case ended badly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="in all, shared evenly among the kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), help="only of this kind")
    parser.add_argument("--show", action="store_true", help="print every message")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    kinds = [options.kind] if options.kind else list(KINDS)
    faults = 0
    for kind in kinds:
        codes: Counter[int | None] = Counter()
        slowest = 0.0
        share = options.cases // len(kinds) + (kind == kinds[0]) * (options.cases % len(kinds))
        with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
            cases = KINDS[kind](random.Random(f"{kind} {options.seed}"), Path(folder))
            for number in range(share):
                verdict = judged(next(cases))
                codes[verdict.code] += 1
                slowest = max(slowest, verdict.seconds)
                if options.show:
                    print(
                        f"--- {kind} {number}: {verdict.code} {verdict.case.name[:300]}\n{verdict.message[:600]}",
                        flush=True,
                    )
                if verdict.seconds > SLOW:
                    print(f"{kind} {number} took {verdict.seconds:.1f} s: {verdict.case.name[:300]}", flush=True)
                if verdict.fault is not None:
                    faults += 1
                    print(f"=== {kind} {number}: {verdict.case.name[:1500]}\n{verdict.fault}\n", flush=True)
                if number % 100 == 99:
                    jax.clear_caches()
                    print(f"{kind}: {number + 1} of {share}, {faults} faults", file=sys.stderr, flush=True)
        ended = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items(), key=str))
        print(f"{kind}: {share} cases ended {ended}; the slowest took {slowest:.1f} s", flush=True)
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
