"""The sites as the server reaches them: who is there, and what they answer, however messages travel."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from headstart.deploy.messages import Fault, Garbled, Message, Reason, difference

__all__ = ["Answers", "Fleet", "LocalFleet", "consult", "readable"]


class Fleet(Protocol):
    """The one thing that differs between real sites and sites in this process."""

    def present(self) -> set[str]:
        """The sites that are connected now, by the names that their keys have in the roster."""
        ...

    def ask(self, questions: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Fault]:
        """Each site's answer, or why there is none; it takes no longer than ``timeout`` seconds."""
        ...


class LocalFleet:
    """Sites in this process. Messages are packed and unpacked as if they travelled."""

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]):
        self._sites = dict(sites)

    def present(self) -> set[str]:
        return set(self._sites)

    def ask(self, questions: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Fault]:
        return {site: self._sites[site](content) for site, content in questions.items()}


class Answers(NamedTuple):
    """What came back."""

    good: dict[str, Message]
    """Answers to what was asked, by site. What they hold has not been looked at."""
    faults: dict[str, Fault]
    bytes_down: int
    bytes_up: int


def consult(fleet: Fleet, questions: Mapping[str, Message], timeout: float, largest: int) -> Answers:
    """Ask some sites something, and sort what comes back into answers to just that and faults."""
    here = fleet.present()
    packed = {site: question.pack() for site, question in questions.items() if site in here}
    faults = {site: Fault("absent", "not connected") for site in questions if site not in here}
    good: dict[str, Message] = {}
    came = fleet.ask(packed, timeout) if packed else {}
    for site in packed:
        content = came.get(site, Fault("silent", f"no answer in {timeout:g} s"))
        answer = content if isinstance(content, Fault) else _answer(content, questions[site], largest)
        if isinstance(answer, Fault):
            faults[site] = answer
        else:
            good[site] = answer
    up = sum(len(content) for content in came.values() if not isinstance(content, Fault))
    return Answers(good, faults, sum(map(len, packed.values())), up)


def _answer(content: bytes, question: Message, largest: int) -> Message | Fault:
    if len(content) > largest:
        return Fault("too large", f"{len(content)} bytes, more than {largest}")
    try:
        answer = Message.unpack(content, largest)
    except Garbled as error:
        return Fault("garbled", str(error))
    if (differs := difference(answer.head, question.head)) is not None:
        return Fault("stale", differs)
    if answer.head.kind == "fault":
        return _told(answer)
    return answer


def _told(answer: Message) -> Fault:
    """A fault as a site tells it: it may be anything."""
    told, detail = answer.said.get("reason"), readable(answer.said.get("detail") or "")
    return Fault(next((reason for reason in TOLD if reason == told), "error"), detail)


def readable(told: object) -> str:
    """What a site tells, for the server's log and terminal: not long, and without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in str(told)[:LONGEST])


TOLD: tuple[Reason, ...] = ("slow", "unreachable", "garbled", "memory", "unknown run", "refused", "error")
"""Reasons that a site itself may give."""
LONGEST = 500
"""Letters of what a site tells in words."""
