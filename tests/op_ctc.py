"""Test cases of connectionist temporal classification (CTC), against the enumeration of all alignments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from op_references import REFERENCES
from op_running import Array, Case, GradientCase, caller, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device


class CTCBatch(NamedTuple):
    """A batch: number of classes, the blank class, and the length and labels of each sample."""

    classes: int
    blank: int
    lengths: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]
    is_permuted: bool = False  # stored as (N, C, T)


ROWS = [
    CTCBatch(3, 0, (5, 4, 1, 3), ((1, 2), (1, 1), (), (2, 1, 2))),  # repeated labels, no labels, as many labels as fit
    CTCBatch(4, 2, (4, 2, 0, 0), ((0, 3, 0), (1, 1), (), (3,)), True),  # some samples have no alignment, or length 0
]


def collapse_path(path: Sequence[int], blank: int) -> tuple[int, ...]:
    """Return the labels of an alignment: merge repetitions, then drop blanks (Graves et al. 2006, section 3.1)."""
    return tuple(k for k, _ in itertools.groupby(path) if k != blank)


def enumerate_alignments(logs: Array, labels: Sequence[int], blank: int) -> tuple[float, Array]:
    """Return the total probability of all alignments, and the part of it that has each class at each time, (T, C)."""
    total, share = 0.0, np.zeros(logs.shape)
    for path in itertools.product(range(logs.shape[1]), repeat=len(logs)):
        if collapse_path(path, blank) == tuple(labels):
            probability = float(np.exp(sum(logs[t, k] for t, k in enumerate(path))))
            total += probability
            for t, k in enumerate(path):
                share[t, k] += probability
    return total, share


def forward_probabilities(logs: Array, labels: Sequence[int], blank: int) -> Array:
    """Return the probability of each state at each time: the sum over all partial paths that end there (alpha)."""
    states = [blank, *itertools.chain.from_iterable((k, blank) for k in labels)]
    probabilities = np.zeros((len(logs), len(states)))
    for t in range(len(logs)):
        for s, k in enumerate(states):
            if t == 0:
                incoming = float(s < 2)
            else:
                skips = s > 1 and k not in (blank, states[s - 2])
                incoming = probabilities[t - 1, max(s - 1 - skips, 0) : s + 1].sum()
            probabilities[t, s] = incoming * np.exp(logs[t, k])
    return probabilities


def _references(row: CTCBatch, logs: Array, grad: Array) -> tuple[Array, Array, Array]:
    """Return losses, log alpha, and the gradient."""
    width = 2 * max(map(len, row.labels)) + 1
    losses = np.zeros(len(row.labels))
    alpha = np.zeros((len(row.labels), len(logs), width))
    grad_logs = np.zeros(logs.shape)
    for n, (length, labels) in enumerate(zip(row.lengths, row.labels, strict=True)):
        total, share = enumerate_alignments(logs[:length, n], labels, row.blank)
        losses[n] = -np.log(total)
        alpha[n, :length, : 2 * len(labels) + 1] = forward_probabilities(logs[:length, n], labels, row.blank)
        if length:
            grad_logs[:length, n] = grad[n] * (np.exp(logs[:length, n]) - share / total)
    return losses, np.log(alpha), grad_logs


REFERENCES |= {"ctc_alpha": enumerate_alignments, "ctc_gradient": enumerate_alignments}


def ctc_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return cases of both batches in float32, and of the first in float64."""
    cases = []
    dtypes = [(row, "float32") for row in ROWS]
    if selection in ("full", "small") and has(device, "float64"):
        dtypes.append((ROWS[0], "float64"))
    for row, dtype in dtypes:
        rng = np.random.default_rng(4)
        shape = (max(row.lengths), len(row.labels), row.classes)
        logs = rounded(rng.standard_normal(shape) - 1, dtype)
        grad = rounded(rng.standard_normal(len(row.labels)), dtype)
        with np.errstate(all="ignore"):
            losses, alpha, grad_logs = _references(row, logs.astype(np.float64), grad.astype(np.float64))
        counts = [len(k) for k in row.labels]
        sample_table = np.stack([row.lengths, counts, np.cumsum([0, *counts[:-1]])], 1)
        labels = np.array([k for sample_labels in row.labels for k in sample_labels])
        logs_tensor = (
            tensor(logs.transpose(1, 2, 0), dtype, device).permute(2, 0, 1)
            if row.is_permuted
            else tensor(logs, dtype, device)
        )
        operands = [logs_tensor, tensor(labels, "int64", device), tensor(sample_table, "int64", device)]
        expected: Any = (losses, alpha)
        kinds: tuple[str, ...] = (dtype, dtype)
        statics: tuple[int, ...] = (alpha.shape[2], row.blank)
        if op.name == "ctc_gradient":
            operands = [
                tensor(grad, dtype, device),
                *operands,
                tensor(losses, dtype, device),
                tensor(alpha, dtype, device),
            ]
            expected, kinds, statics = (grad_logs,), (dtype,), (row.blank,)
        tolerance = (1e-12, 1e-12) if dtype == "float64" else (2e-5, 2e-5)
        cases.append(Case(f"{dtype}, {row}", operands, [logs, grad], expected, kinds, statics, tolerance))
    return cases


def ctc_gradient_cases(op: Op, device: Device) -> list[GradientCase]:
    """Return the gradient case of the losses as functions of logits, through log_softmax."""
    if op.name != "ctc_alpha":
        return []
    call = caller(op)
    logits = np.random.default_rng(6).standard_normal((4, 2, 3))
    labels_and_lengths = (
        tensor(np.array([1, 2, 2]), "int64", device),
        tensor(np.array([[4, 2, 0], [3, 1, 2]]), "int64", device),
    )

    def losses(x: Any) -> Any:
        return call(x.log_softmax(2), *labels_and_lengths, statics=(5, 0))[0]

    return [GradientCase("of logits", losses, [tensor(logits, "float64", device, True)], ("log_probs",))]
