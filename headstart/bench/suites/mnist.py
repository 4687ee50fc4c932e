"""(b) MNIST: 10 of 50 clients, 10 local steps, batches of 40, MLP 80-60."""

from collections.abc import Iterator

from headstart.bench.cases import VMAP, Bar, Case, Settings
from headstart.bench.suites.images import image_cases

__all__ = ["TITLE", "cases"]

TITLE = "MNIST: 10 clients x 10 steps, batches of 40, MLP 80-60"
SECOND_ORDER = (Bar("share", 0.7), Bar("speedup", 4, VMAP))


def cases(settings: Settings) -> Iterator[Case]:
    """FedAvg; Per-FedAvg first-order, Hessian-free and exact; three inner steps."""
    return image_cases(settings, "mnist", {"Hessian-free": SECOND_ORDER, "exact": SECOND_ORDER})
