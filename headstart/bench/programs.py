"""What the compiler made of a round: the program, and how many kernels it starts."""

import re
from collections import Counter
from typing import Any

import jax.numpy as jnp

from headstart.simulate import Simulation
from headstart.simulate.rounds import draw_cohorts, run_chunk

__all__ = ["kernels", "round_program"]

COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) .*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%\S+ = .*? ([a-z][a-z0-9-]*)\(")
INLINED = re.compile(r"(?:calls|to_apply)=%(\S+?)[,\s)]")
FREE = {
    "bitcast", "constant", "get-tuple-element", "parameter", "tuple", "while", "call", "conditional", "after-all",
    "partition-id",
}  # fmt: skip
"""What costs nothing by itself: names for parts of memory, and the frames that other instructions stand in."""


def round_program(simulation: Simulation, rounds: int = 2) -> Any:
    """The compiled chunk of a simulation whose samples are in memory."""
    first = jnp.zeros((), jnp.int32)
    cohorts = draw_cohorts(simulation.plan, simulation.keys, first, rounds)
    return run_chunk.lower(
        simulation.problem, simulation.plan, simulation.algorithm, simulation.wire, simulation.federation.clients,
        simulation.state, simulation.keys, cohorts, first, jnp.asarray(rounds, jnp.int32),
    ).compile()  # fmt: skip


def kernels(program: Any) -> Counter[str]:
    """How many kernels of each kind a program has, where a fusion is one; those of a loop's body are counted once."""
    text = program.as_text()
    inlined = {
        name
        for line in text.splitlines()
        for name in INLINED.findall(line)
        if " fusion(" in line or " call(" not in line
    }
    found: Counter[str] = Counter()
    counted = False
    for line in text.splitlines():
        if header := COMPUTATION.match(line):
            counted = header[1] not in inlined
        elif counted and (instruction := INSTRUCTION.match(line)) and instruction[1] not in FREE:
            found[instruction[1]] += 1
    return found
