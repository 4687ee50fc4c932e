"""The methods once more, in plain numpy loops with derivatives written by hand, on whole client data.

Logistic regression: its Hessian varies with the parameters, so that the point where it is taken shows.
A client is ``(x, y)`` with labels -1 and 1; parameters are one vector with the bias last.
"""

import numpy as np


def _design(x):
    return np.column_stack([x, np.ones(len(x))])


def _sigmoid(z):
    return 1 / (1 + np.exp(-z))


def loss(w, client):
    x, y = client
    return np.mean(np.log1p(np.exp(-y * (_design(x) @ w))))


def gradient(w, client):
    x, y = client
    return -_design(x).T @ (y * _sigmoid(-y * (_design(x) @ w))) / len(y)


def hessian(w, client):
    x, y = client
    p = _sigmoid(_design(x) @ w)
    return _design(x).T @ (_design(x) * (p * (1 - p))[:, None]) / len(y)


def exact(w, client, v):
    return hessian(w, client) @ v


def first_order(w, client, v):
    return np.zeros_like(v)


def hessian_free(radius):
    def product(w, client, v):
        return (gradient(w + radius * v, client) - gradient(w - radius * v, client)) / (2 * radius)

    return product


def _mean(values, weights):
    return sum(a * v for a, v in zip(weights, values, strict=True)) / sum(weights)


def _weights(clients, cohort, by_samples):
    return [len(clients[i][1]) if by_samples else 1 for i in cohort]


def meta_fl(w, clients, cohorts, *, alpha, beta, tau, nu, product=first_order, by_samples=False, kept=None):
    """Jamali's Algorithm 1 with ``beta(k)``; ``kept[k]`` is the iterate of fallah's Remark 4.7."""
    losses, mean_iterate = [], None
    for k, cohort in enumerate(cohorts):
        weights, sent, iterates, seen = _weights(clients, cohort, by_samples), [], [], []
        for i in cohort:
            local, values = w, []
            for t in range(tau):
                if kept is not None and kept[k] == t:
                    iterates.append(local)
                points, u = [], local
                for _ in range(nu):
                    points.append(u)
                    u = u - alpha * gradient(u, clients[i])
                values.append(loss(u, clients[i]))
                v = gradient(u, clients[i])
                for point in reversed(points):
                    v = v - alpha * product(point, clients[i], v)
                local = local - beta(k) * v
            sent.append(local)
            seen.append(np.mean(values))
        w = _mean(sent, weights)
        losses.append(_mean(seen, weights))
        if kept is not None:
            mean_iterate = _mean(iterates, weights)
    return w, losses, mean_iterate


def fedavg(w, clients, cohorts, *, beta, tau, mu=0.0, mixing=lambda k: 1.0, by_samples=False):
    """SGD on every client; ``mu`` makes it FedProx, ``mixing(k)`` Reptile."""
    losses = []
    for k, cohort in enumerate(cohorts):
        weights, sent, seen = _weights(clients, cohort, by_samples), [], []
        for i in cohort:
            local, values = w, []
            for _ in range(tau):
                values.append(loss(local, clients[i]))
                local = local - beta(k) * (gradient(local, clients[i]) + mu * (local - w))
            sent.append(local)
            seen.append(np.mean(values))
        w = w + mixing(k) * (_mean(sent, weights) - w)
        losses.append(_mean(seen, weights))
    return w, losses


def moreau_point(anchor, client, *, penalty, inner_lr, inner_steps):
    """Gradient steps on the loss plus half the penalty times the squared distance; the mean loss on the way."""
    theta, values = anchor, []
    for _ in range(inner_steps):
        values.append(loss(theta, client))
        theta = theta - inner_lr * (gradient(theta, client) + penalty * (theta - anchor))
    return theta, np.mean(values) if values else None


def pfedme(w, clients, cohorts, *, penalty, inner_lr, inner_steps, eta, mixing, steps):
    losses = []
    for cohort in cohorts:
        sent, seen = [], []
        for i in cohort:
            local, values = w, []
            for _ in range(steps):
                theta, value = moreau_point(
                    local, clients[i], penalty=penalty, inner_lr=inner_lr, inner_steps=inner_steps
                )
                local = local - eta * penalty * (local - theta)
                values.append(value)
            sent.append(local)
            seen.append(np.mean(values))
        w = (1 - mixing) * w + mixing * np.mean(sent, axis=0)
        losses.append(np.mean(seen))
    return w, losses


def aruba(w, clients, cohorts, *, epsilon, zeta, power, tau):
    """The parameters, the losses and the two accumulators b and g."""
    b, g, losses = np.full_like(w, epsilon**2), np.full_like(w, zeta**2), []
    for k, cohort in enumerate(cohorts):
        sent, moved, squares, seen = [], [], [], []
        for i in cohort:
            local, square, values = w, np.zeros_like(w), []
            for _ in range(tau):
                values.append(loss(local, clients[i]))
                step = gradient(local, clients[i])
                square = square + step**2
                local = local - np.sqrt(b / g) * step
            sent.append(local)
            moved.append((local - w) ** 2 / 2)
            squares.append(square)
            seen.append(np.mean(values))
        b = b + epsilon**2 / (k + 2) ** power + np.mean(moved, axis=0)
        g = g + zeta**2 / (k + 2) ** power + np.mean(squares, axis=0)
        w = np.mean(sent, axis=0)
        losses.append(np.mean(seen))
    return w, losses, b, g


def aruba_refined(w, client, b, g, *, refinement, steps):
    for _ in range(steps):
        step = gradient(w, client)
        w = w - np.sqrt(b / g) * step
        g = g + refinement * step**2
    return w


def fine_tuned(w, client, *, lr, steps):
    for _ in range(steps):
        w = w - lr * gradient(w, client)
    return w
