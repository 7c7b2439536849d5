"""Check activation checkpointing: the same bits from less memory, nested checkpoints and autocast."""

import warnings

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def linear(weight, bias=None):
    """Return a Linear layer with these weights."""
    weight = np.asarray(weight, np.float32)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": np.float32(bias)})
    return layer


def deep():
    wg.manual_seed(3)
    layers = [nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Sigmoid()) for _ in range(12)]
    return nn.Sequential(*[nn.Sequential(*layers[i : i + 3]) for i in range(0, 12, 3)])


def step(net, checkpointing):
    """Return every gradient and the next random number, and the bytes held before backward."""
    net.zero_grad()
    wg.manual_seed(7)
    x = wg.tensor(np.linspace(-1, 0, 256 * 32, dtype=np.float32).reshape(256, 32), requires_grad=True)
    bytes_before = wg.memory_allocated()
    out = x
    if checkpointing == "sequential":
        out = checkpoint_sequential(net, 2, x, use_reentrant=False)
    else:
        for part in net:
            out = part(out) if checkpointing is None else checkpoint(part, out, use_reentrant=checkpointing)
    held_bytes = wg.memory_allocated() - bytes_before
    out.sum().backward()
    return [x.grad.numpy(), *(p.grad.numpy() for p in net.parameters()), wg.rand(1).item()], held_bytes


@pytest.mark.parametrize("checkpointing", [True, False, "sequential"])
def test_checkpoints_give_the_same_bits_from_less_memory(checkpointing):
    net = deep()
    expected, plain_bytes = step(net, None)
    actual, held_bytes = step(net, checkpointing)
    assert all((a == b).all() if isinstance(a, np.ndarray) else a == b for a, b in zip(expected, actual, strict=True))
    assert held_bytes < 0.6 * plain_bytes


def test_checkpoints_in_checkpoints_higher_derivatives_and_written_values():
    def inner(x):
        y = x * 3
        y.mul_(x)
        return y.exp()

    def outer(x, *, scale):
        return checkpoint(inner, x * scale, use_reentrant=False).exp()

    derivatives = []
    for is_plain in (False, True):
        x = wg.tensor([-1.0, 0.5, 0.25], requires_grad=True)
        y = inner(x * 2).exp() if is_plain else checkpoint(outer, x, scale=2, use_reentrant=False)
        (first,) = wg.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = wg.autograd.grad(first.sum(), x, retain_graph=True)
        (second_again,) = wg.autograd.grad(first.sum(), x)
        assert second_again.tolist() == second.tolist()
        derivatives.append((first.tolist(), second.tolist()))
    assert derivatives[0] == derivatives[1]


def test_checkpoints_repeat_the_casts_of_autocast():
    layer = linear(np.eye(2), [1, 2])
    results = []
    for is_plain in (True, False):
        layer.zero_grad()
        x = wg.tensor([[0.3, 0.7]], requires_grad=True)
        with wg.autocast("cpu", dtype=wg.bfloat16):
            y = layer(layer(x)) if is_plain else checkpoint(lambda x: layer(layer(x)), x, use_reentrant=False)
        y.sum().backward()  # outside the autocast region, whose cached casts are gone
        results.append((y.dtype, x.grad.tolist(), layer.weight.grad.tolist(), layer.bias.grad.tolist()))
    assert results[0] == results[1]
    assert results[0][0] is wg.bfloat16


def test_errors_of_checkpoints():
    x = wg.ones(3, requires_grad=True)
    runs = []

    def fickle(x):
        runs.append(1)
        return x.exp() if len(runs) % 2 else x.exp().exp()

    with pytest.raises(CheckpointError, match=r"fickle recorded 1 calls .* and 2 in backward"):
        checkpoint(fickle, x, use_reentrant=False).sum().backward()
    middle = x * 2
    out = checkpoint(wg.exp, middle, use_reentrant=False)
    middle.zero_()
    with pytest.raises(RuntimeError, match="modified in place"):
        out.sum().backward()
    with pytest.warns(UserWarning, match="none of the arguments requires grad"):
        checkpoint(wg.exp, wg.ones(3), use_reentrant=True)
    with pytest.warns(UserWarning, match="pass use_reentrant"):
        checkpoint(wg.exp, x)
    with pytest.raises(ValueError, match="only be used with use_reentrant=False"):
        checkpoint(wg.exp, x, use_reentrant=True, flag=1)
    with pytest.raises(ValueError, match="'default' or 'none'"):
        checkpoint(wg.exp, x, use_reentrant=False, determinism_check="x")
    with pytest.raises(ValueError, match="3 segments"):
        checkpoint_sequential([wg.exp], 3, x, use_reentrant=False)
    with wg.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint(wg.exp, x, use_reentrant=False).node is None
