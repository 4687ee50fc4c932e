"""Estimates of the constants that the papers' assumptions speak of, for a given problem, federation and region."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np

from headstart.core import FULL, Size, checks
from headstart.data import Federation, Part
from headstart.errors import UsageError, did_you_mean
from headstart.problems import Problem
from headstart.theory.constants import Constants
from headstart.theory.estimate.curvature import GradientNorm, HessianNorm, ThirdDerivativeNorm
from headstart.theory.estimate.dissimilarity import GradientDissimilarity, HessianDissimilarity
from headstart.theory.estimate.landscape import Effort, Peak, Quantity, climb
from headstart.theory.estimate.losses import ClientLosses
from headstart.theory.estimate.noise import GradientNoise, HessianNoise
from headstart.theory.estimate.region import Region
from headstart.theory.sampling import choose_clients, choose_size, in_memory

__all__ = ["Estimate", "Estimates", "estimate_constants"]

NAMES = tuple(field.name for field in fields(Constants))


@dataclass(frozen=True)
class Estimate:
    """One constant, as far as it could be told."""

    value: float
    standard_error: float
    """The error of the mean over samples or clients, where those looked at were not all, and the spread of the
    largest value found if the starts were drawn again (bootstrap). How far a search stays below the supremum
    it does not tell."""
    samples: int
    """What the value is a mean or a maximum over: a client's samples, clients, or starts for each client."""
    how: str

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.standard_error:.2g} ({self.how})"


@dataclass(frozen=True)
class Estimates(Mapping[str, Estimate]):
    """Estimates by the names of the fields of `Constants`."""

    found: Mapping[str, Estimate]

    def __getitem__(self, name: str) -> Estimate:
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def constants(self, safety: float = 1.0) -> Constants:
        """The values as `Constants` for the bounds, each scaled by ``safety``, and fourth moments by its fourth power.

        A bound holds with constants that are too large but not with ones that are too small, and a search may
        have missed a supremum: a factor above 1 is the remedy.
        """
        checks.at_least("safety", safety, 1)
        missing = [field.name for field in fields(Constants) if field.name not in self and field.default is not None]
        if missing:
            raise UsageError(
                f"{', '.join(missing)} {'were' if len(missing) > 1 else 'was'} not estimated.",
                "Add them to `names`, or leave `names` out for all.",
            )
        scale = {name: safety**4 if name.endswith("fourth_moment") else safety for name in self}
        return Constants(**{name: scale[name] * estimate.value for name, estimate in self.items()})


def estimate_constants(
    problem: Problem,
    federation: Federation,
    region: Region,
    *,
    names: Sequence[str] = NAMES,
    clients: int | Sequence[int] | None = None,
    part: Part = "train",
    batch_size: Size | None = None,
    effort: Effort = Effort(),  # noqa: B008
    seed: int = 0,
) -> Estimates:
    """Estimates the constants of `Constants` over a region of parameters, without ever holding a Hessian.

    Every constant is a supremum over the region, and all but the dissimilarities one over clients too. It is searched
    for by ascent from several points, so **what is found is a lower bound** (`Effort` says how hard to search,
    `Estimates.constants` takes a safety factor). Spectral norms are Lanczos' on Hessian-vector products,
    the Hessian's Lipschitz constant is the norm of the third derivative. Where activations have kinks (ReLU) that
    ignores them: there the Hessian has no Lipschitz constant.

    A client's distribution is that of its samples in ``part``, each as likely, so moments over them are exact.
    With a ``batch_size``, and always where clients generate their samples (1024 unless given), that many draws stand
    for it: the standard errors tell what that costs, and the dissimilarities contain the noise of the draws' mean.

    ``clients`` are numbers of clients, or how many to draw from those that train; left out, all that train.
    The cost of ``hessian_dissimilarity`` grows with the square of their number.

    >>> import headstart as hs
    >>> from headstart.theory.estimate import Ball, estimate_constants
    >>> federation = hs.data.sine(clients=3)
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,), activation="tanh"))
    >>> near_start = Ball(problem.init(jax.random.key(0)), radius=0.1)
    >>> found = estimate_constants(problem, federation, near_start, names=["gradient_bound"], batch_size=64)
    >>> found["gradient_bound"].value > 0
    True
    """
    for name in names:
        if name not in NAMES:
            raise UsageError(f"There is no constant {name!r}.", did_you_mean(name, NAMES))
    if not callable(problem.objective()):
        raise UsageError(
            f"{type(problem).__name__} is not a mean over samples, which these constants are about.",
            "Estimate the constants of a problem with a plain loss.",
        )
    ids, population = choose_clients(federation, clients, seed)
    size = choose_size(federation, batch_size)
    data, places = in_memory(federation, part, ids)
    numbers = dict(zip(places.tolist(), ids.tolist(), strict=True))
    start_key, data_key, search_key = jax.random.split(jax.random.key(seed), 3)
    search = _Search(
        ClientLosses(problem, data, region.example, data_key, part, size),
        region,
        region.starts(effort.starts, start_key),
        places,
        {place: federation.name(number) for place, number in numbers.items()},
        effort,
        search_key,
    )
    drawn = size != FULL
    counts = None
    if not drawn and federation.counts is not None:
        counts = {place: int(federation.counts[part][number]) for place, number in numbers.items()}
    quantities: dict[str, Quantity] = {
        "smoothness": HessianNorm(effort.products),
        "hessian_lipschitz": ThirdDerivativeNorm(effort.products),
        "gradient_bound": GradientNorm(),
        "gradient_noise": GradientNoise(2.0, drawn),
        "hessian_noise": HessianNoise(2.0, drawn, effort.products, effort.samples),
        "gradient_dissimilarity": GradientDissimilarity(population),
        "hessian_dissimilarity": HessianDissimilarity(population, effort.products),
        "gradient_fourth_moment": GradientNoise(4.0, drawn),
        "hessian_fourth_moment": HessianNoise(4.0, drawn, effort.products, effort.samples),
    }
    found = {}
    for name in names:
        quantity = quantities[name]
        root = 1 if name.endswith("fourth_moment") else 2
        if isinstance(quantity, GradientDissimilarity | HessianDissimilarity):
            found[name] = search.over_clients(name, quantity, population)
        elif isinstance(quantity, GradientNoise | HessianNoise):
            found[name] = search.over_samples(name, quantity, root, counts)
        else:
            found[name] = search.supremum(name, quantity)
    return Estimates(found)


@dataclass(frozen=True)
class _Search:
    """A search for suprema over one region, client by client or over all clients together."""

    losses: ClientLosses
    region: Region
    starts: jax.Array
    places: np.ndarray
    names: Mapping[int, str]
    effort: Effort
    key: jax.Array

    def supremum(self, name: str, quantity: Quantity) -> Estimate:
        """The largest norm over clients and points."""
        peaks = self._client_peaks(name, quantity)
        best, spread = _largest(peaks, root=2)
        return Estimate(
            best.height**0.5,
            spread,
            len(self.places) * len(peaks),
            f"largest over {_count(len(self.places), 'client')} of {len(peaks)} searches; a lower bound",
        )

    def over_samples(self, name: str, quantity: Quantity, root: int, counts: Mapping[int, int] | None) -> Estimate:
        """The largest mean over a client's samples, over clients and points."""
        peaks = self._client_peaks(name, quantity)
        best, spread = _largest(peaks, root)
        used = int(np.sum(best.weights > 0))
        error = _error_of_mean(best, None if counts is None else counts[best.place])
        return Estimate(
            best.height ** (1 / root),
            float(np.hypot(spread, _through_root(error, best.height, root))),
            used,
            f"mean over {used} samples of client {self.names[best.place]}, the largest over "
            f"{_count(len(self.places), 'client')} of {len(peaks)} searches",
        )

    def over_clients(self, name: str, quantity: Quantity, population: int) -> Estimate:
        """The largest mean over clients, over points."""
        peaks = [
            self._climb(name, quantity, self.places, number, self.effort.steps if self.effort.climbs else 0)
            for number in range(len(self.starts))
        ]
        best, spread = _largest(peaks, root=2)
        error = _error_of_mean(best, population)
        return Estimate(
            best.height**0.5,
            float(np.hypot(spread, _through_root(error, best.height, 2))),
            len(self.places),
            f"mean over {_count(len(self.places), 'client')} of {population}, the largest of {len(peaks)} searches",
        )

    def _client_peaks(self, name: str, quantity: Quantity) -> list["_Found"]:
        """From each start the highest peak: all clients are looked at, and the most promising climbed."""
        highest = []
        for number in range(len(self.starts)):
            looks = [self._climb(name, quantity, client, number, 0) for client in self.places]
            looks.sort(key=lambda found: -found.height)
            climbed = [
                self._climb(name, quantity, np.asarray(look.place, np.int32), number, self.effort.steps)
                for look in looks[: self.effort.climbs]
            ]
            highest.append(max([*looks, *climbed], key=lambda found: found.height))
        return highest

    def _climb(self, name: str, quantity: Quantity, place: np.ndarray, number: int, steps: int) -> "_Found":
        key = jax.random.fold_in(self.key, number)
        peak = climb(quantity, self.losses, self.region, jnp.asarray(place), self.starts[number], steps, key)
        found = _Found.of(peak, place)
        if not np.isfinite(found.height):
            where = "of the clients" if np.ndim(place) else f"of client {self.names[int(place)]}"
            raise UsageError(
                f"The {name} {where} is not finite at a point of the region.",
                "Take a smaller region, or a loss that is finite there with its derivatives.",
            )
        return found


@dataclass(frozen=True)
class _Found:
    """A peak on the host, in double precision."""

    height: float
    terms: np.ndarray
    weights: np.ndarray
    place: int

    @classmethod
    def of(cls, peak: Peak, place: np.ndarray) -> "_Found":
        terms, weights = np.asarray(peak.terms, np.float64), np.asarray(peak.weights, np.float64)
        return cls(float(peak.height), terms, weights, -1 if np.ndim(place) else int(place))


BOOTSTRAPS = 500


def _largest(peaks: Sequence[_Found], root: int) -> tuple[_Found, float]:
    """The highest of the peaks, and how much its root would vary if the starts were drawn again."""
    heights = np.array([peak.height for peak in peaks]) ** (1 / root)
    again = np.random.default_rng(0).integers(0, len(heights), (BOOTSTRAPS, len(heights)))
    return max(peaks, key=lambda peak: peak.height), float(heights[again].max(axis=1).std())


def _error_of_mean(peak: _Found, population: int | None) -> float:
    """The standard error of a mean over some of a population, drawn without replacement; endless where ``None``."""
    terms = (peak.terms * peak.weights * np.sum(peak.weights > 0))[peak.weights > 0]
    if population is not None and len(terms) >= population:
        return 0.0
    if len(terms) < 2:
        return float("inf")
    share = 0.0 if population is None else len(terms) / population
    return float(terms.std(ddof=1) * np.sqrt((1 - share) / len(terms)))


def _through_root(error: float, height: float, root: int) -> float:
    """The error of a root of the height (the delta method)."""
    if root == 1 or error == 0:
        return error
    return error / (2 * np.sqrt(height)) if height > 0 else float(np.sqrt(error))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
