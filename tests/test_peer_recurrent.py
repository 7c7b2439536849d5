"""Recurrent networks beside PyTorch's: its state_dict loaded, outputs, gradients and second gradients, in every mode.

Skipped where torch is not installed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn.utils import rnn as ours_packing

torch = pytest.importorskip("torch")

FEATURES, SIZE, BATCH, LENGTH = 4, 5, 3, 6


def both(array, grad=False):
    """The same values in both packages, as leaves."""
    return wg.tensor(array.copy(), requires_grad=grad), torch.tensor(array.copy(), requires_grad=grad)


def close(ours, theirs, tolerance=1e-10):
    ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def modules(kind, dtype="float64", **options):
    """One of each package, with the same parameters."""
    torch.manual_seed(3)
    theirs = getattr(torch.nn, kind)(FEATURES, SIZE, dtype=getattr(torch, dtype), **options)
    ours = getattr(nn, kind)(FEATURES, SIZE, dtype=getattr(wg, dtype), **options)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: wg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def flat(found):
    """The tensors in a network's results."""
    if isinstance(found, tuple) and hasattr(found, "batch_sizes"):
        return [found.data]
    return [t for part in found for t in flat(part)] if isinstance(found, tuple) else [found]


def compare(ours, theirs, inputs, call, second):
    """Results, gradients, and with `second` gradients of a function of the gradients."""
    rng = np.random.default_rng(5)
    found, wanted = (flat(call(module, *operands)) for module, operands in zip((ours, theirs), inputs, strict=True))
    for one, other in zip(found, wanted, strict=True):
        close(one, other)
    leaves = [[*operands, *module.parameters()] for module, operands in zip((ours, theirs), inputs, strict=True)]
    seeds = [both(rng.standard_normal(tuple(w.shape))) for w in wanted]
    first = [
        package.autograd.grad(outs, own, [s[i] for s in seeds], create_graph=second)
        for i, (package, outs, own) in enumerate(((wg, found, leaves[0]), (torch, wanted, leaves[1])))
    ]
    for one, other in zip(*first, strict=True):
        close(one, other)
    if second:
        again = [
            package.autograd.grad(sum((g * g).sum() for g in grads), own)
            for package, grads, own in ((wg, first[0], leaves[0]), (torch, first[1], leaves[1]))
        ]
        for one, other in zip(*again, strict=True):
            close(one, other, 1e-9)


KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2})]


@pytest.mark.parametrize(("kind", "own"), KINDS)
@pytest.mark.parametrize("form", ["batch", "packed", "sorted", "single", "no states"])
def test_networks(kind, own, form):
    rng = np.random.default_rng(1)
    for layers, bias, first, two in itertools.product((1, 2), (True, False), (True, False), (True, False)):
        options = {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": two}
        ours, theirs = modules(kind, **own, **options)
        single = () if form == "single" else (BATCH,)
        shape = (*single, LENGTH, FEATURES) if first else (LENGTH, *single, FEATURES)
        rows = layers * (1 + two)
        arrays = [rng.uniform(-1, 1, shape), rng.uniform(-1, 1, (rows, *single, own.get("proj_size", SIZE)))]
        if kind == "LSTM":
            arrays.append(rng.uniform(-1, 1, (rows, *single, SIZE)))
        inputs = list(zip(*(both(a, True) for a in (arrays[:1] if form == "no states" else arrays)), strict=True))

        def call(module, x, *states, first=first):
            if form in ("packed", "sorted"):
                package = ours_packing if isinstance(module, nn.Module) else torch.nn.utils.rnn
                lengths = [6, 4, 1] if form == "sorted" else [4, 6, 1]
                x = package.pack_padded_sequence(x, lengths, first, enforce_sorted=form == "sorted")
            return module(x, (states if kind == "LSTM" else states[0]) if states else None)

        compare(ours, theirs, inputs, call, second=layers == 2 and bias)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells(kind):
    rng = np.random.default_rng(2)
    for bias, single, given in itertools.product((True, False), (True, False), (True, False)):
        ours, theirs = modules(kind, bias=bias)
        lead = () if single else (BATCH,)
        states = (1 + (kind == "LSTMCell")) * given
        arrays = [rng.uniform(-1, 1, (*lead, FEATURES)), *(rng.uniform(-1, 1, (*lead, SIZE)) for _ in range(states))]

        def call(module, x, *states):
            return module(x, (states if len(states) == 2 else states[0]) if states else None)

        compare(ours, theirs, list(zip(*(both(a, True) for a in arrays), strict=True)), call, second=True)


def test_functions():
    rng = np.random.default_rng(4)
    for name, gates in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)):
        shapes = [(gates * SIZE, FEATURES), (gates * SIZE, SIZE), (gates * SIZE,), (gates * SIZE,)]
        weights = [both(rng.uniform(-1, 1, s)) for s in shapes]
        x, h, c = both(rng.uniform(-1, 1, (BATCH, FEATURES))), *(both(rng.uniform(-1, 1, (BATCH, SIZE))) for _ in "hc")
        found = [
            getattr(package, f"{name}_cell")(x[i], [h[i], c[i]] if name == "lstm" else h[i], *(w[i] for w in weights))
            for i, package in enumerate((wg, torch))
        ]
        for one, other in zip(*(flat(f) for f in found), strict=True):
            close(one, other)
        whole = [
            getattr(package, name)(x[i][None], [h[i][None], c[i][None]] if name == "lstm" else h[i][None],
                                   [w[i] for w in weights], True, 1, 0.0, False, False, False)
            for i, package in enumerate((wg, torch))
        ]  # fmt: skip
        for one, other in zip(*(flat(f) for f in whole), strict=True):
            close(one, other)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_dtypes(dtype):
    x = np.random.default_rng(6).uniform(-1, 1, (LENGTH, BATCH, FEATURES))
    for kind in ("RNN", "GRU", "LSTM"):
        ours, theirs = modules(kind, num_layers=2)
        ours, theirs = ours.to(getattr(wg, dtype)), theirs.to(getattr(torch, dtype))
        (a, b), tolerance = both(x), {"float32": 2e-6, "bfloat16": 3e-2}[dtype]
        found, wanted = ours(a.to(getattr(wg, dtype)))[0], theirs(b.to(getattr(torch, dtype)))[0]
        close(found.to(wg.float32), wanted.float(), tolerance)


def test_packing():
    padded = np.arange(24.0).reshape(4, 3, 2)
    for first, lengths in ((False, [2, 4, 1]), (True, [1, 4, 3, 4])):
        given = padded if not first else np.arange(32.0).reshape(4, 4, 2)
        ours = ours_packing.pack_padded_sequence(wg.tensor(given), lengths, first, enforce_sorted=False)
        theirs = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(given), lengths, first, enforce_sorted=False)
        close(ours.data, theirs.data)
        assert ours.batch_sizes.tolist() == theirs.batch_sizes.tolist()
        found = ours_packing.pad_packed_sequence(ours, first, -2.0, 7)
        wanted = torch.nn.utils.rnn.pad_packed_sequence(theirs, first, -2.0, 7)
        close(found[0], wanted[0])
        assert found[1].tolist() == wanted[1].tolist()
