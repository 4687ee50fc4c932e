"""The memory methods in plain numpy loops, on whole client data and the logistic regression of `reference`."""

import numpy as np

from tests.algorithms.reference import gradient, loss


def _meta_gradient(w, u, client, alpha, product):
    v = gradient(u, client)
    return v - alpha * product(w, client, v)


def _adapted(w, client, alpha):
    return w - alpha * gradient(w, client)


def _blend(old, new, weight):
    return new if old is None else (1 - weight) * old + weight * new


def moml(w, clients, cohorts, *, alpha, eta, beta, product, memories=None):
    """Wang's Algorithm 1; ``memories`` other than ``None`` have begun."""
    memories, losses = list(memories or [None] * len(clients)), []
    for k, cohort in enumerate(cohorts):
        sent, seen = [], []
        for i in cohort:
            memories[i] = _blend(memories[i], _adapted(w, clients[i], alpha), beta)
            seen.append(loss(memories[i], clients[i]))
            sent.append(_meta_gradient(w, memories[i], clients[i], alpha, product))
        w = w - eta(k) * np.mean(sent, axis=0)
        losses.append(np.mean(seen))
    return w, losses, memories


def moml_v2(w, clients, cohorts, others, *, alpha, eta, beta, product, lipschitz=None):
    """Wang's Algorithm 2 with every memory moved; ``lipschitz = (L, rho)`` gives the steps of section 4.3."""
    n, losses, betas = len(clients), [], []
    memories = [w] * n
    last = None if lipschitz is None else eta(0) / (4 * lipschitz[0])
    for k, (cohort, drawn) in enumerate(zip(cohorts, others, strict=True)):
        weight, step = beta, eta(k)
        if lipschitz is not None:
            smooth, rho = lipschitz
            weight = min(1.0, 6 * smooth**2 * eta(k) ** (-1 / 3) * last)
            norms = [np.linalg.norm(gradient(w, clients[i])) for i in drawn]
            last = step = eta(k) / (4 * smooth + 2 * rho * alpha * np.mean(norms))
        for i in range(n):
            memories[i] = (1 - weight) * memories[i] + weight * w
            if i in drawn:
                memories[i] = memories[i] + weight * n / len(drawn) * (_adapted(w, clients[i], alpha) - w)
        sent = [_meta_gradient(w, memories[i], clients[i], alpha, product) for i in cohort]
        losses.append(np.mean([loss(memories[i], clients[i]) for i in cohort]))
        betas.append(weight)
        w = w - step * np.mean(sent, axis=0)
    return w, losses, memories, betas


def local_moml(w, clients, cohorts, *, alpha, eta, beta, steps, product, keep):
    """Wang's Algorithm 3: ``keep`` carries memories over, else every round restarts them."""
    kept, losses = [None] * len(clients), []
    for k, cohort in enumerate(cohorts):
        sent, seen = [], []
        for i in cohort:
            local, values = w, []
            u = kept[i] if keep else _adapted(w, clients[i], alpha)
            for _ in range(steps):
                u = _blend(u, _adapted(local, clients[i], alpha), beta)
                values.append(loss(u, clients[i]))
                local = local - eta(k) * _meta_gradient(local, u, clients[i], alpha, product)
            kept[i] = u
            sent.append(local)
            seen.append(np.mean(values))
        w = np.mean(sent, axis=0)
        losses.append(np.mean(seen))
    return w, losses, kept


def local_moml_on_tasks(w, groups, drawn, *, alpha, eta, beta, product, keep):
    """The same with several tasks a client: ``drawn[k][i][h]`` are the tasks of client i in step h of round k."""
    memories, losses = [[None] * len(tasks) for tasks in groups], []
    for round_ in drawn:
        sent, seen = [], []
        for i, tasks in enumerate(groups):
            local = w
            if not keep:
                memories[i] = [_adapted(w, task, alpha) for task in tasks]
            for chosen in round_[i]:
                for j in chosen:
                    memories[i][j] = _blend(memories[i][j], _adapted(local, tasks[j], alpha), beta)
                seen.append(np.mean([loss(memories[i][j], tasks[j]) for j in chosen]))
                moves = [_meta_gradient(local, memories[i][j], tasks[j], alpha, product) for j in chosen]
                local = local - eta * np.mean(moves, axis=0)
            sent.append(local)
        w = np.mean(sent, axis=0)
        losses.append(np.mean(seen))
    return w, losses, memories


def nasa(w, clients, rounds, *, alpha, gamma, averaging, momentum, product):
    """Ghadimi et al.'s Algorithm 1 in their order: x moves, then z is taken at the old u, then u is renewed."""
    u = [_adapted(w, client, alpha) for client in clients]
    z = np.mean([_meta_gradient(w, u[i], client, alpha, product) for i, client in enumerate(clients)], axis=0)
    losses = [np.mean([loss(u[i], client) for i, client in enumerate(clients)])]
    for k in range(rounds):
        w = w - gamma(k) * z
        if k == rounds - 1:
            break
        losses.append(np.mean([loss(u[i], client) for i, client in enumerate(clients)]))
        new = np.mean([_meta_gradient(w, u[i], client, alpha, product) for i, client in enumerate(clients)], axis=0)
        z = (1 - momentum) * z + momentum * new
        u = [(1 - averaging) * u[i] + averaging * _adapted(w, client, alpha) for i, client in enumerate(clients)]
    return w, losses, z, u


def bspiderboost(w, clients, cohorts, *, alpha, eta, period, product, large_cohorts=1):
    """Hu et al.'s Algorithm 2; a large batch is of the tasks of several cohorts, which come one a round."""
    previous, v, losses = w, None, []

    def mean(point, cohort):
        ends = [_adapted(point, clients[i], alpha) for i in cohort]
        moves = [_meta_gradient(point, u, clients[i], alpha, product) for u, i in zip(ends, cohort, strict=True)]
        return np.mean(moves, axis=0)

    for k, cohort in enumerate(cohorts):
        losses.append(np.mean([loss(_adapted(w, clients[i], alpha), clients[i]) for i in cohort]))
        place = k % (period + large_cohorts - 1)
        if place < large_cohorts:
            v = mean(w, [i for cohort in cohorts[k - place : k + 1] for i in cohort])
            if place < large_cohorts - 1:
                continue
        else:
            v = v + mean(w, cohort) - mean(previous, cohort)
        previous, w = w, w - eta(k) * v
    return w, losses, v
