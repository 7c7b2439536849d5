"""Compare recurrent networks with PyTorch: state_dict, outputs, gradients and second gradients, in every mode.

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


def tensor_pair(array, grad=False):
    """Return the same values as leaf tensors of both packages."""
    return wg.tensor(array.copy(), requires_grad=grad), torch.tensor(array.copy(), requires_grad=grad)


def assert_close(ours, theirs, tolerance=1e-10):
    ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def module_pair(kind, dtype="float64", **options):
    """Return the same module of both packages, with the same parameters."""
    torch.manual_seed(3)
    theirs = getattr(torch.nn, kind)(FEATURES, SIZE, dtype=getattr(torch, dtype), **options)
    ours = getattr(nn, kind)(FEATURES, SIZE, dtype=getattr(wg, dtype), **options)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: wg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def flatten(outputs):
    """Return the tensors in a network's results, as a flat list."""
    if isinstance(outputs, tuple) and hasattr(outputs, "batch_sizes"):
        return [outputs.data]
    return [t for part in outputs for t in flatten(part)] if isinstance(outputs, tuple) else [outputs]


def compare(ours, theirs, inputs, call, second):
    """Compare results and gradients, and with `second` also second gradients."""
    rng = np.random.default_rng(5)
    actual, expected = (
        flatten(call(module, *operands)) for module, operands in zip((ours, theirs), inputs, strict=True)
    )
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b)
    leaves = [[*operands, *module.parameters()] for module, operands in zip((ours, theirs), inputs, strict=True)]
    seeds = [tensor_pair(rng.standard_normal(tuple(w.shape))) for w in expected]
    first_grads = [
        package.autograd.grad(outs, variables, [s[i] for s in seeds], create_graph=second)
        for i, (package, outs, variables) in enumerate(((wg, actual, leaves[0]), (torch, expected, leaves[1])))
    ]
    for a, b in zip(*first_grads, strict=True):
        assert_close(a, b)
    if second:
        second_grads = [
            package.autograd.grad(sum((g * g).sum() for g in grads), variables)
            for package, grads, variables in ((wg, first_grads[0], leaves[0]), (torch, first_grads[1], leaves[1]))
        ]
        for a, b in zip(*second_grads, strict=True):
            assert_close(a, b, 1e-9)


KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 2})]


@pytest.mark.parametrize(("kind", "kind_options"), KINDS)
@pytest.mark.parametrize("form", ["batch", "packed", "sorted", "single", "no states"])
def test_networks(kind, kind_options, form):
    rng = np.random.default_rng(1)
    for layers, bias, batch_first, bidirectional in itertools.product(
        (1, 2), (True, False), (True, False), (True, False)
    ):
        options = {"num_layers": layers, "bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
        ours, theirs = module_pair(kind, **kind_options, **options)
        single = () if form == "single" else (BATCH,)
        shape = (*single, LENGTH, FEATURES) if batch_first else (LENGTH, *single, FEATURES)
        rows = layers * (1 + bidirectional)
        arrays = [rng.uniform(-1, 1, shape), rng.uniform(-1, 1, (rows, *single, kind_options.get("proj_size", SIZE)))]
        if kind == "LSTM":
            arrays.append(rng.uniform(-1, 1, (rows, *single, SIZE)))
        inputs = list(
            zip(*(tensor_pair(a, True) for a in (arrays[:1] if form == "no states" else arrays)), strict=True)
        )

        def call(module, x, *states, batch_first=batch_first):
            if form in ("packed", "sorted"):
                package = ours_packing if isinstance(module, nn.Module) else torch.nn.utils.rnn
                lengths = [6, 4, 1] if form == "sorted" else [4, 6, 1]
                x = package.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=form == "sorted")
            return module(x, (states if kind == "LSTM" else states[0]) if states else None)

        compare(ours, theirs, inputs, call, second=layers == 2 and bias)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells(kind):
    rng = np.random.default_rng(2)
    for bias, single, has_states in itertools.product((True, False), (True, False), (True, False)):
        ours, theirs = module_pair(kind, bias=bias)
        batch_shape = () if single else (BATCH,)
        states = (1 + (kind == "LSTMCell")) * has_states
        arrays = [
            rng.uniform(-1, 1, (*batch_shape, FEATURES)),
            *(rng.uniform(-1, 1, (*batch_shape, SIZE)) for _ in range(states)),
        ]

        def call(module, x, *states):
            return module(x, (states if len(states) == 2 else states[0]) if states else None)

        compare(ours, theirs, list(zip(*(tensor_pair(a, True) for a in arrays), strict=True)), call, second=True)


def test_functions():
    rng = np.random.default_rng(4)
    for name, gates in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)):
        shapes = [(gates * SIZE, FEATURES), (gates * SIZE, SIZE), (gates * SIZE,), (gates * SIZE,)]
        weights = [tensor_pair(rng.uniform(-1, 1, s)) for s in shapes]
        x, h, c = (
            tensor_pair(rng.uniform(-1, 1, (BATCH, FEATURES))),
            *(tensor_pair(rng.uniform(-1, 1, (BATCH, SIZE))) for _ in "hc"),
        )
        cell_outputs = [
            getattr(package, f"{name}_cell")(x[i], [h[i], c[i]] if name == "lstm" else h[i], *(w[i] for w in weights))
            for i, package in enumerate((wg, torch))
        ]
        for ours, theirs in zip(*(flatten(f) for f in cell_outputs), strict=True):
            assert_close(ours, theirs)
        sequence_outputs = [
            getattr(package, name)(x[i][None], [h[i][None], c[i][None]] if name == "lstm" else h[i][None],
                                   [w[i] for w in weights], True, 1, 0.0, False, False, False)
            for i, package in enumerate((wg, torch))
        ]  # fmt: skip
        for ours, theirs in zip(*(flatten(f) for f in sequence_outputs), strict=True):
            assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_dtypes(dtype):
    x = np.random.default_rng(6).uniform(-1, 1, (LENGTH, BATCH, FEATURES))
    for kind in ("RNN", "GRU", "LSTM"):
        ours, theirs = module_pair(kind, num_layers=2)
        ours, theirs = ours.to(getattr(wg, dtype)), theirs.to(getattr(torch, dtype))
        (a, b), tolerance = tensor_pair(x), {"float32": 2e-6, "bfloat16": 3e-2}[dtype]
        actual, expected = ours(a.to(getattr(wg, dtype)))[0], theirs(b.to(getattr(torch, dtype)))[0]
        assert_close(actual.to(wg.float32), expected.float(), tolerance)


def test_packing():
    padded = np.arange(24.0).reshape(4, 3, 2)
    for batch_first, lengths in ((False, [2, 4, 1]), (True, [1, 4, 3, 4])):
        array = padded if not batch_first else np.arange(32.0).reshape(4, 4, 2)
        ours = ours_packing.pack_padded_sequence(wg.tensor(array), lengths, batch_first, enforce_sorted=False)
        theirs = torch.nn.utils.rnn.pack_padded_sequence(
            torch.tensor(array), lengths, batch_first, enforce_sorted=False
        )
        assert_close(ours.data, theirs.data)
        assert ours.batch_sizes.tolist() == theirs.batch_sizes.tolist()
        our_padded = ours_packing.pad_packed_sequence(ours, batch_first, -2.0, 7)
        their_padded = torch.nn.utils.rnn.pad_packed_sequence(theirs, batch_first, -2.0, 7)
        assert_close(our_padded[0], their_padded[0])
        assert our_padded[1].tolist() == their_padded[1].tolist()
