"""The metrics by their definitions, in plain numpy, on the samples that count alone.

Where a definition leaves a case open they follow scikit-learn: balanced accuracy is over classes that occur, macro F1
over classes that occur or are predicted, R2 of constant targets is 1 or 0, and of a single sample NaN.
"""

import numpy as np


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def accuracy(logits, y, w):
    return w[logits.argmax(1) == y].sum() / w.sum()


def balanced_accuracy(logits, y, w):
    hits = logits.argmax(1) == y
    return np.mean([w[hits & (y == c)].sum() / w[y == c].sum() for c in np.unique(y)])


def macro_f1(logits, y, w):
    guess, scores = logits.argmax(1), []
    for c in np.union1d(y, guess):
        true = w[(y == c) & (guess == c)].sum()
        false_positive, false_negative = w[(y != c) & (guess == c)].sum(), w[(y == c) & (guess != c)].sum()
        scores.append(2 * true / (2 * true + false_positive + false_negative))
    return np.mean(scores)


def area(scores, positive, w):
    total = won = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            total += w[i] * w[j]
            won += w[i] * w[j] * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    return won / total if total else np.nan


def auc(logits, y, w):
    shares = softmax(logits)
    if logits.shape[1] == 2:
        return area(shares[:, 1], y == 1, w)
    areas = [area(shares[:, c], y == c, w) for c in range(logits.shape[1])]
    return np.nan if np.isnan(areas).all() else np.nanmean(areas)


def log_loss(logits, y, w):
    return -(w * np.log(softmax(logits)[np.arange(len(y)), y])).sum() / w.sum()


def calibration_error(logits, y, w):
    confidence, hits, error = softmax(logits).max(1), logits.argmax(1) == y, 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        error += abs((w * hits)[inside].sum() - (w * confidence)[inside].sum()) / w.sum()
    return error


def rmse(outputs, y, w):
    return np.sqrt((w * ((outputs - y) ** 2).mean(1)).sum() / w.sum())


def mae(outputs, y, w):
    return (w * abs(outputs - y).mean(1)).sum() / w.sum()


def r2(outputs, y, w):
    if len(y) < 2:
        return np.nan
    shares = []
    for predicted, true in zip(outputs.T, y.T, strict=True):
        left, spread = (w * (predicted - true) ** 2).sum(), (w * (true - np.average(true, weights=w)) ** 2).sum()
        shares.append(1 - left / spread if np.ptp(true) else float(left == 0))
    return np.mean(shares)
