"""Cases of connectionist temporal classification: against every alignment, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from op_references import REFERENCES
from op_running import Array, Case, Slopes, caller, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device


class Given(NamedTuple):
    """A batch: classes, the blank among them, and of each sample its length and its labels."""

    classes: int
    blank: int
    lengths: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]
    turned: bool = False  # memory is (N, C, T)


ROWS = [
    Given(3, 0, (5, 4, 1, 3), ((1, 2), (1, 1), (), (2, 1, 2))),  # repeated labels, none, as many as there is time for
    Given(4, 2, (4, 2, 0, 0), ((0, 3, 0), (1, 1), (), (3,)), True),  # the last but one have no alignment, or no time
]


def merged(path: Sequence[int], blank: int) -> tuple[int, ...]:
    """What an alignment stands for (Graves et al. 2006, section 3.1): repetitions merged, then blanks left out."""
    return tuple(k for k, _ in itertools.groupby(path) if k != blank)


def enumerated(logs: Array, labels: Sequence[int], blank: int) -> tuple[float, Array]:
    """(the sum of the probabilities of all alignments, of that the share of each class at each time) of (T, C)."""
    total, share = 0.0, np.zeros(logs.shape)
    for path in itertools.product(range(logs.shape[1]), repeat=len(logs)):
        if merged(path, blank) == tuple(labels):
            chance = float(np.exp(sum(logs[t, k] for t, k in enumerate(path))))
            total += chance
            for t, k in enumerate(path):
                share[t, k] += chance
    return total, share


def reached(logs: Array, labels: Sequence[int], blank: int) -> Array:
    """The probability of each state at each time: of all beginnings of paths through the states that end there."""
    states = [blank, *itertools.chain.from_iterable((k, blank) for k in labels)]
    found = np.zeros((len(logs), len(states)))
    for t in range(len(logs)):
        for s, k in enumerate(states):
            if t == 0:
                come = float(s < 2)
            else:
                skips = s > 1 and k not in (blank, states[s - 2])
                come = found[t - 1, max(s - 1 - skips, 0) : s + 1].sum()
            found[t, s] = come * np.exp(logs[t, k])
    return found


def _references(row: Given, logs: Array, grad: Array) -> tuple[Array, Array, Array]:
    """Losses, alpha, and the gradient."""
    width = 2 * max(map(len, row.labels)) + 1
    losses = np.zeros(len(row.labels))
    alpha = np.zeros((len(row.labels), len(logs), width))
    slope = np.zeros(logs.shape)
    for n, (length, labels) in enumerate(zip(row.lengths, row.labels, strict=True)):
        total, share = enumerated(logs[:length, n], labels, row.blank)
        losses[n] = -np.log(total)
        alpha[n, :length, : 2 * len(labels) + 1] = reached(logs[:length, n], labels, row.blank)
        if length:
            slope[:length, n] = grad[n] * (np.exp(logs[:length, n]) - share / total)
    return losses, np.log(alpha), slope


REFERENCES |= {"ctc_alpha": enumerated, "ctc_gradient": enumerated}


def ctc_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Both batches in float32; the first in float64 too."""
    found = []
    dtypes = [(row, "float32") for row in ROWS] + ([(ROWS[0], "float64")] if selection in ("full", "small") else [])
    for row, dtype in dtypes:
        rng = np.random.default_rng(4)
        shape = (max(row.lengths), len(row.labels), row.classes)
        logs = rounded(rng.standard_normal(shape) - 1, dtype)
        grad = rounded(rng.standard_normal(len(row.labels)), dtype)
        with np.errstate(all="ignore"):
            losses, alpha, slope = _references(row, logs.astype(np.float64), grad.astype(np.float64))
        counts = [len(k) for k in row.labels]
        places = np.stack([row.lengths, counts, np.cumsum([0, *counts[:-1]])], 1)
        labels = np.array([k for each in row.labels for k in each])
        given = (
            tensor(logs.transpose(1, 2, 0), dtype, place).permute(2, 0, 1) if row.turned else tensor(logs, dtype, place)
        )
        operands = [given, tensor(labels, "int64", place), tensor(places, "int64", place)]
        expected: Any = (losses, alpha)
        kinds: tuple[str, ...] = (dtype, dtype)
        statics: tuple[int, ...] = (alpha.shape[2], row.blank)
        if op.name == "ctc_gradient":
            operands = [
                tensor(grad, dtype, place),
                *operands,
                tensor(losses, dtype, place),
                tensor(alpha, dtype, place),
            ]
            expected, kinds, statics = (slope,), (dtype,), (row.blank,)
        tolerance = (1e-12, 1e-12) if dtype == "float64" else (2e-5, 2e-5)
        found.append(Case(f"{dtype}, {row}", operands, [logs, grad], expected, kinds, statics, tolerance))
    return found


def ctc_slopes(op: Op, place: Device) -> list[Slopes]:
    """The losses of logits: the gradient is that through log_softmax."""
    if op.name != "ctc_alpha":
        return []
    call = caller(op)
    logits = np.random.default_rng(6).standard_normal((4, 2, 3))
    rest = (tensor(np.array([1, 2, 2]), "int64", place), tensor(np.array([[4, 2, 0], [3, 1, 2]]), "int64", place))

    def losses(x: Any) -> Any:
        return call(x.log_softmax(2), *rest, statics=(5, 0))[0]

    return [Slopes("of logits", losses, [tensor(logits, "float64", place, True)], ("log_probs",))]
