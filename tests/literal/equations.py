"""The paper's equations, written from its text, one number at a time: no torch, no matrices."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def dot(x: Array, y: Array) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))


def times(matrix: Array, vector: Array) -> Array:
    return np.array([dot(row, vector) for row in matrix])


def unit(vector: Array) -> Array:
    return vector / math.sqrt(dot(vector, vector))


def layer_norm(vector: Array, scale: Array, shift: Array, eps: float = 1e-5) -> Array:
    mean = math.fsum(vector) / len(vector)
    variance = math.fsum((v - mean) ** 2 for v in vector) / len(vector)
    return (vector - mean) / math.sqrt(variance + eps) * scale + shift


def self_attention(
    rows: Array, w_in: Array, b_in: Array, w_out: Array, b_out: Array, heads: int
) -> Array:
    """Multi-head attention of rows (frames, width) over themselves, scaled dot products."""
    width = rows.shape[1]
    size = width // heads
    projected = np.array([times(w_in, row) + b_in for row in rows])
    query, key, value = np.split(projected, 3, axis=1)
    result = np.zeros_like(rows)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(len(rows)):
            logits = [dot(query[i, part], key[j, part]) / math.sqrt(size) for j in range(len(rows))]
            exponentials = [math.exp(logit - max(logits)) for logit in logits]
            for j in range(len(rows)):
                result[i, part] += exponentials[j] / math.fsum(exponentials) * value[j, part]
    return np.array([times(w_out, row) + b_out for row in result])


def excitation(f: Array, w1: Array, w2: Array) -> Array:
    """Equation 2 without its batch normalisation."""
    squeezed = np.array([max(0.0, v) for v in times(w1, f)])
    gate = np.array([sigmoid(v) for v in times(w2, squeezed)])
    return f * gate


def batch_norm(x: Array, mean: Array, var: Array, scale: Array, shift: Array) -> Array:
    return (x - mean) / np.sqrt(var + 1e-5) * scale + shift


def pathology(x: Array, delta: Array, a: Array, w_p1: Array, w_p2: Array) -> Array:
    """Equation 3."""
    joined = np.concatenate([x, delta, [sigmoid(v) for v in a]])
    hidden = np.array([max(0.0, v) for v in times(w_p1, joined)])
    return times(w_p2, hidden)


def prototype_term(f: Array, prototypes: Array, s: float) -> Array:
    """What equation 4 adds to [a; p]."""
    return np.array([0.3 * s * dot(unit(f), unit(p)) for p in prototypes])


def contrastive(f: Array, text: Array, tau: float) -> Array:
    """Equation 5."""
    return np.array([dot(unit(f), unit(t)) * math.exp(tau) for t in text])


def angular(prototypes: Array) -> float:
    """Equation 6."""
    count = len(prototypes)
    total = 0.0
    for i in range(count):
        for j in range(count):
            if i != j:
                total += dot(unit(prototypes[i]), unit(prototypes[j])) ** 2
    return total / (count * (count - 1))


def orthogonality(w_anat: Array, w_p1: Array) -> float:
    """Section 2.6, with the first columns of W_p1."""
    total = 0.0
    for a in w_anat:
        for p in w_p1:
            total += dot(a, p[: len(a)]) ** 2
    return math.sqrt(total)


def focal(logits: Array, targets: Array) -> float:
    """Asymmetric focal loss, soft targets as in decision 12: gamma+ 1, gamma- 4, margin 0.05."""
    total = 0.0
    for z, y in zip(logits.ravel(), targets.ravel(), strict=True):
        p = sigmoid(z)
        p_m = max(p - 0.05, 0.0)
        p_t = y * p + (1 - y) * (1 - p_m)
        weight = (1 - p_t) ** (1 * y + 4 * (1 - y))
        total += weight * (y * math.log(p) + (1 - y) * math.log(1 - p_m))
    return -total / logits.size


def separate_focal(logits: Array, targets: Array) -> float:
    """The same on hard labels; soft targets weight two separately focused terms."""
    total = 0.0
    for z, y in zip(logits.ravel(), targets.ravel(), strict=True):
        p = sigmoid(z)
        q = max(p - 0.05, 0.0)
        total += y * (1 - p) ** 1 * math.log(p) + (1 - y) * q**4 * math.log(1 - q)
    return -total / logits.size


def weighted_bce(logits: Array, targets: Array, weights: Array) -> float:
    total = 0.0
    for row, truth in zip(logits, targets, strict=True):
        for z, y, w in zip(row, truth, weights, strict=True):
            total += w * y * math.log(sigmoid(z)) + (1 - y) * math.log(1 - sigmoid(z))
    return -total / logits.size
