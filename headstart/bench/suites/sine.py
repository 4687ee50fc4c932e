"""(a) Sine waves: iterations so small that starting their operations is most of what they cost."""

from collections.abc import Iterator
from functools import partial

from headstart.algorithms import MOML, NASA, LocalMOML, LocalSCGDM, MOMLv2
from headstart.bench.cases import LOOP, VMAP, Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.core import Algorithm
from headstart.data import sine
from headstart.models import MLP
from headstart.problems import Regression
from headstart.simulate import Simulation

__all__ = ["TITLE", "cases", "sine_problem"]

TITLE = "Sine waves: 3 tasks, batches of 10, MLP 40-40, second order"
COHORT, TASKS, MANY = 3, 25, 10_000
ITERATIONS, TORCH_ITERATIONS = 400, 40


def sine_problem() -> Regression:
    """MLP 40-40 with ReLU, as in wang's experiments."""
    return Regression(MLP(inputs=1, outputs=1, hidden=(40, 40), activation="relu"))


def cases(settings: Settings) -> Iterator[Case]:
    """MOML v1 and v2, LocalMOML, NASA and Local-SCGDM."""
    count, torch_count = (4, 1) if settings.quick else (ITERATIONS, TORCH_ITERATIONS)

    def ours(algorithm: Algorithm, cohort: int = COHORT, tasks: int = TASKS) -> Side:
        simulation = Simulation(algorithm, sine_problem(), sine(clients=tasks, held_out=0), cohort=cohort)
        return Side(lambda: simulation.advance(count, count), count, round_flops(simulation))

    def torch_side(name: str, samples: int, cohort: int, mapped: bool) -> Side:
        import jax

        from headstart.bench.plain import parameters
        from headstart.bench.suites import _sine_torch

        params = parameters(sine_problem().init(jax.random.key(0)))
        return _sine_torch.iterations(name, params, samples, cohort, torch_count, mapped)

    def against(name: str, samples: int = 10, cohort: int = COHORT) -> dict[str, partial[Side]]:
        return {
            side: partial(torch_side, name, samples, cohort, mapped) for side, mapped in ((LOOP, False), (VMAP, True))
        }

    def case(
        name: str, algorithm: Algorithm, others: dict[str, partial[Side]], bars: tuple[Bar, ...] = (),
        cohort: int = COHORT, tasks: int = TASKS,
    ) -> Case:  # fmt: skip
        return Case(name, "iteration", partial(ours, algorithm, cohort, tasks), others, bars)

    yield case("MOML v1, K = 10", MOML(batch_size=10), against("moml"), (Bar("speedup", 60, LOOP),))
    if settings.quick:
        return
    yield case("MOML v1, K = 1", MOML(batch_size=1), against("moml", 1))
    for tasks in (TASKS, MANY):
        first = {"v1": partial(ours, MOML(batch_size=10), COHORT, tasks)}
        # A memory moves by averaging / p, which is to stay small where a task is seldom drawn.
        second = MOMLv2(batch_size=10, averaging=COHORT / tasks)
        yield case(f"MOML v2, {tasks:,} tasks", second, first, (Bar("ratio", 1.25, "v1"),), tasks=tasks)
    yield case("LocalMOML, H = 4", LocalMOML(local_steps=4, batch_size=10), against("local-moml"))
    yield case("NASA, all 25 tasks", NASA(batch_size=10), against("nasa", cohort=TASKS), cohort=TASKS)
    yield case("Local-SCGDM, p = 5", LocalSCGDM(local_steps=5, batch_size=10), against("local-scgdm"))
