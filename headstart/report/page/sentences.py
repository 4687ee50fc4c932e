"""What was learned, in three sentences made from the data, and honest about noise."""

import math

import numpy as np

from headstart.metrics import Metric
from headstart.report.page.reading import NEW, Evidence, Method
from headstart.statistics import PairedTest, mean_interval, paired_test

__all__ = ["against", "best_method", "change", "learned", "paired_over_clients", "steps_words", "worst_tenth"]

NO_DIFFERENT = "no different"


def learned(evidence: Evidence) -> list[str]:
    """What clients get, whether the methods differ, and who loses."""
    best = best_method(evidence)
    return [_what_clients_get(best, evidence.judged), _whether_methods_differ(evidence, best), _who_loses(best)]


def best_method(evidence: Evidence) -> Method:
    """The one whose clients score best on average after the most steps."""
    best = evidence.methods[0]
    for method in evidence.methods[1:]:
        if evidence.metric.better(_mean(method, evidence.judged), than=_mean(best, evidence.judged)):
            best = method
    return best


def steps_words(steps: int) -> str:
    """``1 step``, ``5 steps``."""
    return f"{steps} step{'' if steps == 1 else 's'}"


def value(metric: Metric, number: float) -> str:
    """A value with its unit."""
    unit = " %" if metric.unit == "%" else f" {metric.unit}" if metric.unit else ""
    return f"{metric.show(number)}{unit}"


def change(metric: Metric, gain: float, beside: float | None = None) -> str:
    """``3.1 points better``, ``0.02 worse``; above zero is better."""
    if not np.isfinite(gain):
        return "undefined"
    size = metric.show(abs(gain), beside=beside)
    if float(size) == 0:
        return NO_DIFFERENT
    unit = " points" if metric.unit == "%" else f" {metric.unit}" if metric.unit else ""
    return f"{size}{unit} {'better' if gain > 0 else 'worse'}"


def against(metric: Metric, gain: float, other: str, beside: float | None = None) -> str:
    """``3.1 points better than fedavg``, ``no different from fedavg``."""
    words = change(metric, gain, beside)
    return f"{words} {'from' if words == NO_DIFFERENT else 'than'} {other}"


def worst_tenth(metric: Metric, scores: np.ndarray) -> float:
    """The mean of the worst tenth, at least one, of the scores that are finite."""
    there = np.sort(scores[np.isfinite(scores)])
    tenth = max(1, len(there) // 10)
    if not len(there):
        return math.nan
    return float((there[:tenth] if metric.higher_is_better else there[-tenth:]).mean())


def paired_over_clients(one: Method, other: Method, group: str) -> PairedTest:
    """Both methods on the clients that they share; above zero the first is better."""
    _, mine, theirs = np.intersect1d(one.clients, other.clients, return_indices=True)
    chosen = one.chosen(group)[mine]
    mine, theirs = mine[chosen], theirs[chosen]
    first, second = one.scores[one.steps[-1]][mine], other.scores[other.steps[-1]][theirs]
    return paired_test(first, second) if one.metric.higher_is_better else paired_test(second, first)


def _mean(method: Method, group: str) -> float:
    return mean_interval(method.after(group)).mean


def _what_clients_get(method: Method, group: str) -> str:
    metric, most = method.metric, method.steps[-1]
    interval = mean_interval(method.after(group))
    who = "a new client" if group == NEW else "a client"
    when = f"After {steps_words(most)} on its own data, {who}" if most else f"With the shared model {who}"
    if not np.isfinite(interval.mean):
        return f"{when} of {method.title} has no finite {metric.name}: training has diverged."
    noise = (
        f" (95% interval {metric.show(interval.low)} to {metric.show(interval.high)} over {interval.number} clients)"
        if interval.known
        else f" ({interval.number} client, so nothing can be said about noise)"
    )
    sentence = f"{when} has {metric.name} {value(metric, interval.mean)} on average with {method.title}{noise}"
    if not method.adapts:
        return f"{sentence}; how it does before and after adapting was not evaluated."
    gain = mean_interval(method.gains[method.chosen(group)])
    beside = against(metric, gain.mean, "the shared model as it is", beside=interval.mean)
    chance = ", which may be chance" if gain.known and gain.mean and not gain.excludes(0) else ""
    return f"{sentence}, {beside}{chance}."


def _whether_methods_differ(evidence: Evidence, best: Method) -> str:
    seeds = sorted({run.config["seed"] for run in evidence.runs})
    seed = "One seed was run, so how much training itself varies is not known" if len(seeds) == 1 else ""
    others = [method for method in evidence.methods if method is not best]
    if not others:
        return (
            f"There is no other method to compare with. {seed}."
            if seed
            else "There is no other method to compare with."
        )
    rest = Evidence(evidence.runs, others, [], evidence.metric)
    second = best_method(rest)
    test = paired_over_clients(best, second, evidence.judged)
    metric = evidence.metric
    which = "the runner-up" if len(others) > 1 else "the other method"
    if not best.run.same_clients(second.run):
        return f"{second.title}, {which}, is of other data, so that clients cannot be compared one by one."
    if not test.difference.number:
        return f"{second.title}, {which}, has no client in common with it to compare on."
    apart = against(metric, test.difference.mean, f"{second.title}, {which}", beside=_mean(best, evidence.judged))
    if not test.difference.known:
        sentence = f"It is {apart}, on the one client that both have"
    elif not test.above and not test.below:
        sentence = f"It is {apart}, on each of the same {test.difference.number} clients"
    else:
        mean = _mean(best, evidence.judged)
        low, high = (metric.show(end, beside=mean) for end in (test.difference.low, test.difference.high))
        verdict = "more than chance among clients gives" if test.difference.excludes(0) else "which may well be chance"
        sentence = (
            f"It is {apart}, on the same {test.difference.number} clients "
            f"(95% interval of the difference {low} to {high}): {verdict}"
        )
    return f"{sentence}. {seed}." if seed else f"{sentence}."


def _who_loses(method: Method) -> str:
    group, metric = method.judged, method.metric
    chosen = method.chosen(group)
    who = "new clients" if group == NEW else "clients"
    last = worst_tenth(metric, method.after(group))
    if not method.adapts:
        return f"The worst tenth of the {who} has {metric.name} {value(metric, last)}."
    gains = method.gains[chosen]
    gains = gains[np.isfinite(gains)]
    gain, lose = int((gains > 0).sum()), int((gains < 0).sum())
    before = worst_tenth(metric, method.scores[0][chosen])
    tail = f"the worst tenth has {metric.name} {value(metric, last)} after adapting and {value(metric, before)} before"
    stay = len(gains) - gain - lose
    return (
        f"With {method.title}, adapting helps {gain:,} of {len(gains):,} {who}, harms {lose:,}"
        f"{f' and leaves {stay:,} where they were' if stay else ''}; {tail}."
    )
