"""Few-shot federations: wang's tasks of disjoint classes, and gao's alphabets."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from headstart.core import checks
from headstart.data.episodes import Episodes
from headstart.data.partitions.dealing import class_labels, factorized
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError, did_you_mean

__all__ = ["Alphabets", "DisjointTasks"]


@dataclass(frozen=True)
class DisjointTasks(Partitioner):
    """Every client is one task of ``ways`` classes, and no class is in two tasks: wang section 6.2.

    ``ways=20, tasks=25, test_tasks=10`` is wang's Omniglot, ``ways=5, tasks=17, test_tasks=3`` its CIFAR-100.
    """

    ways: int = 5
    shots: int = 1
    queries: int = 15
    tasks: int = 17
    test_tasks: int = 3
    """Tasks that never train."""
    test_draws: int = 1
    """How often such a task is judged, each time on shots and queries of its own: each draw is a client."""

    def __call__(self, samples: Samples, seed: int) -> Partition:
        episodes = Episodes(self.ways, self.shots, self.queries)
        checks.whole("tasks", self.tasks, 1)
        checks.whole("test_tasks", self.test_tasks, 0)
        checks.whole("test_draws", self.test_draws, 1)
        labels = class_labels(samples)
        counts = np.bincount(labels)
        classes = np.flatnonzero(counts >= episodes.images)
        total = self.tasks + self.test_tasks
        if total * self.ways > len(classes):
            raise UsageError(
                f"{total} tasks of {self.ways} classes need {total * self.ways} classes with {episodes.images} samples "
                f"or more, but {samples.name} has {len(classes)}.",
                f"Take at most {len(classes) // self.ways} tasks in all, or fewer ways, shots or queries.",
            )
        drawn = np.random.default_rng(seed).permutation(classes)[: total * self.ways]
        owner = np.full(len(counts), -1)
        owner[drawn] = np.repeat(np.arange(total), self.ways)
        rows = samples.shuffled(np.arange(len(samples)), seed)
        # All draws of a task, then those of the next: evenly spaced clients are then of all tasks.
        judged = self.tasks + np.repeat(np.arange(self.test_tasks), self.test_draws)
        names = [f"task {i}" for i in (*range(self.tasks), *judged)]
        if self.test_draws > 1:
            draws = np.tile(np.arange(self.test_draws), self.test_tasks)
            names[self.tasks :] = [f"task {i}, draw {draw}" for i, draw in zip(judged, draws, strict=True)]
        lists = RowLists.by_owner(owner[labels[rows]], total, rows).chosen(np.append(np.arange(self.tasks), judged))
        left = len(counts.nonzero()[0]) - len(drawn)
        return Partition(
            samples,
            train=lists,
            query=lists,
            names=names,
            held_out=len(judged),
            notes=(f"{left} classes are in no task.",) if left else (),
            episodes=episodes,
        )


@dataclass(frozen=True)
class Alphabets(Partitioner):
    """Every client has the classes of one group, an alphabet; tasks are drawn from them: gao section 5.2.

    The groups are divided at random into ``clients`` that train, ``validation`` and ``test``. Of the latter two one
    is evaluated, or both are: ``tasks`` tasks of each, dealt evenly over its groups.
    """

    column: str = "alphabet"
    clients: int = 33
    validation: int = 5
    test: int = 12
    evaluate: Literal["validation", "test", "both"] = "test"
    ways: int = 5
    shots: int = 1
    queries: int = 15
    rotations: bool = True
    tasks: int = 600

    def __call__(self, samples: Samples, seed: int) -> Partition:
        episodes = Episodes(self.ways, self.shots, self.queries, self.rotations)
        for name in ("clients", "validation", "test", "tasks"):
            checks.whole(name, getattr(self, name), 1)
        groups, group = factorized(samples.column(self.column), f"{samples.name}: the column {self.column}")
        if self.clients + self.validation + self.test > len(groups):
            raise UsageError(
                f"{self.clients} clients, {self.validation} validation and {self.test} test groups are more than the "
                f"{len(groups)} values of {self.column}.",
                "Take fewer of them.",
            )
        order = np.random.default_rng(seed).permutation(len(groups))
        kinds = {
            "validation": order[self.clients :][: self.validation],
            "test": order[self.clients + self.validation :][: self.test],
        }
        if self.evaluate not in (*kinds, "both"):
            raise UsageError(
                f"evaluate = {self.evaluate!r} is not known.", did_you_mean(self.evaluate, (*kinds, "both"))
            )
        judged = list(kinds) if self.evaluate == "both" else [self.evaluate]
        # All tasks of a group, then those of the next: evenly spaced clients are then of all groups.
        dealt = {kind: np.arange(self.tasks) * len(kinds[kind]) // self.tasks for kind in judged}
        owners = np.concatenate([order[: self.clients], *(kinds[kind][dealt[kind]] for kind in judged)])
        rows = samples.shuffled(np.arange(len(samples)), seed)
        lists = RowLists.by_owner(group[rows], len(groups), rows).chosen(owners)
        names = [str(groups[int(g)]) for g in owners]
        number = np.concatenate([np.arange(self.tasks) - np.searchsorted(d, d) for d in dealt.values()])
        names[self.clients :] = [f"{name}, task {i}" for name, i in zip(names[self.clients :], number, strict=True)]
        return Partition(
            samples,
            train=lists,
            query=lists,
            names=names,
            held_out=len(judged) * self.tasks,
            notes=tuple(
                f"{self.tasks} {kind} tasks from {len(kinds[kind])} values of {self.column}." for kind in judged
            ),
            episodes=episodes,
            validation=self.tasks if self.evaluate == "both" else 0,
        )
