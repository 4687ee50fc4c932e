"""Numbers as people read them."""

import math

from headstart_papers.record import Score
from headstart_papers.statistics import Estimate

__all__ = ["as_reported", "clock", "decimals", "p_value", "signed", "with_interval"]

MANY = 1e6


def decimals(size: float, score: Score) -> int:
    """Digits after the point for values of this size: two of percents, otherwise so that three or four count."""
    if score.percent or not math.isfinite(size):
        return 2
    size = abs(float(f"{size:.3g}"))
    magnitude = math.floor(math.log10(size)) if size else 0
    return max(3 - magnitude, 0) if magnitude >= 0 else max(2 - magnitude, 3)


def with_interval(mean: float, half_width: float | None, score: Score) -> str:
    """``79.85 ± 0.61``, or the mean alone."""
    digits = decimals(mean, score)
    return _written(mean, digits) + ("" if half_width is None else f" ± {_written(half_width, digits)}")


def as_reported(value: float, half_width: float | None, score: Score) -> str:
    """A paper's number, with no more digits than the paper gives; percents have two."""
    if score.percent:
        return with_interval(value, half_width, score)
    if half_width is None:
        return f"{value:g}"
    digits = max(len(f"{number:g}".partition(".")[2]) for number in (value, half_width))
    return f"{value:.{digits}f} ± {half_width:.{digits}f}"


def signed(difference: Estimate, score: Score, size: float) -> str:
    """``+2.40 ± 0.61``: a difference of values of a given size."""
    digits = decimals(size, score)
    interval = "" if difference.half_width is None else f" ± {_written(difference.half_width, digits)}"
    return _written(difference.mean, digits, "+") + interval


def _written(value: float, digits: int, sign: str = "") -> str:
    """With so many digits after the point; what is on its way to infinity as ``1.49e12``."""
    if not MANY <= abs(value) < math.inf:
        return f"{value:{sign}.{digits}f}"
    mantissa, exponent = f"{value:{sign}.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def p_value(p: float) -> str:
    """``p = 0.002``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def clock(seconds: float) -> str:
    """``45 s``, ``12 min`` or ``3 h 20 min``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
