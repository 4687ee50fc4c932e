"""The compositional methods once more, in plain numpy loops with Jacobians written out by hand.

A composition here is ``inner(x, client)``, ``jacobian(x, client)``, and ``outer(u, client)``, which gives value and
gradient; clients, parameters and the logistic loss are those of ``reference``.
"""

import numpy as np

from tests.algorithms import reference
from tests.algorithms.reference import _design, _sigmoid


class Meta:
    """Gao (8) on logistic regression."""

    def __init__(self, lr, product=reference.exact):
        self.lr, self.product = lr, product

    def inner(self, x, client):
        return x - self.lr * reference.gradient(x, client)

    def pull(self, x, client, v):
        return v - self.lr * self.product(x, client, v)

    def outer(self, u, client):
        return reference.loss(u, client), reference.gradient(u, client)


class Curved:
    """Three numbers of which f is a nonlinear function: both levels curved, f also through its own samples."""

    def inner(self, x, client):
        s, y = _design(client[0]) @ x, client[1]
        return np.array([np.mean(np.exp(-y * s / 2)), np.mean(np.tanh(s)), np.mean(s**2) / 2])

    def jacobian(self, x, client):
        a, y = _design(client[0]), client[1]
        s = a @ x
        slopes = np.stack([-y / 2 * np.exp(-y * s / 2), 1 - np.tanh(s) ** 2, s])
        return slopes @ a / len(y)

    def pull(self, x, client, v):
        return self.jacobian(x, client).T @ v

    def outer(self, u, client):
        y = client[1]
        value = np.log(u[0]) + np.mean(np.log1p(np.exp(-y * u[1]))) + u[2] ** 2 / 5
        return value, np.array([1 / u[0], np.mean(-y * _sigmoid(-y * u[1])), 2 * u[2] / 5])


def local_scgdm(x, tasks, cohorts, composition, *, beta, gamma, alpha, p, drawn=lambda k, i, t: [i], separate=False):
    """Gao's Algorithm 1 for effective ``gamma`` and ``alpha``; ``drawn(k, i, t)`` are a step's tasks.

    Returns x, u, m, the losses, and the tasks' own memories where they are separate.
    """
    u = m = None
    own, losses = {}, []
    for k, cohort in enumerate(cohorts):
        sent, seen = [], []
        for i in cohort:
            local_x, local_u, local_m, values = x, u, m, []
            for t in range(p):
                now = [tasks[j] for j in drawn(k, i, t)]
                g = [composition.inner(local_x, task) for task in now]
                if separate:
                    memories = []
                    for j, value in zip(drawn(k, i, t), g, strict=True):
                        own[j] = (1 - gamma) * own[j] + gamma * value if j in own else value
                        memories.append(own[j])
                    outers = [composition.outer(at, task) for at, task in zip(memories, now, strict=True)]
                    pairs = zip(now, [slope for _, slope in outers], strict=True)
                else:
                    value = np.mean(g, axis=0)
                    local_u = value if local_u is None else (1 - gamma) * local_u + gamma * value
                    outers = [composition.outer(local_u, task) for task in now]
                    slope = np.mean([slope for _, slope in outers], axis=0)
                    pairs = [(task, slope) for task in now]
                z = np.mean([composition.pull(local_x, task, slope) for task, slope in pairs], axis=0)
                local_m = z if local_m is None else (1 - alpha) * local_m + alpha * z
                local_x = local_x - beta(k) * local_m
                values.append(np.mean([value for value, _ in outers]))
            sent.append((local_x, local_u, local_m))
            seen.append(np.mean(values))
        x, m = np.mean([s[0] for s in sent], axis=0), np.mean([s[2] for s in sent], axis=0)
        if not separate:
            u = np.mean([s[1] for s in sent], axis=0)
        losses.append(np.mean(seen))
    return x, u, m, losses, own


def prototype_loss(weight, bias, support, query, ways):
    """ProtoNet's episode with a linear embedding: its value, and its gradient in the weights.

    The bias shifts query samples and prototypes alike, so its gradient is zero.
    """
    (x, y), (xs, ys) = query, support
    classes = [k for k in range(ways) if (ys == k).any()]
    means = np.stack([xs[ys == k].mean(axis=0) for k in classes])
    h, c = x @ weight + bias, means @ weight + bias
    apart = h[:, None] - c[None]
    logits = -(apart**2).sum(axis=-1)
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    value, slopes = 0.0, np.zeros_like(logits)
    for q, label in enumerate(y):
        if label in classes:
            value -= np.log(chance[q, classes.index(label)]) / len(y)
            slopes[q] = (chance[q] - np.eye(len(classes))[classes.index(label)]) / len(y)
    pulls = -2 * slopes[:, :, None] * apart
    return value, x.T @ pulls.sum(axis=1) - means.T @ pulls.sum(axis=0)
