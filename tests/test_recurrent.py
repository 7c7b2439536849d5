"""Recurrent networks: every sort and option against their equations, derivatives, packed sequences, errors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from recurrent_reference import network

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn.utils import rnn as packing
from weftgrad.runtime import errors
from weftgrad.runtime.dispatch import call
from weftgrad.runtime.modes import Mode
from weftgrad.runtime.records import registry

FEATURES, SIZE, BATCH, LENGTH = 3, 4, 3, 4
LENGTHS = [2, 4, 4]  # no step has one row alone, which would be kernels of its own
RNG = np.random.default_rng(8)


def made(mode, **options):
    if mode.startswith("RNN"):
        return nn.RNN(FEATURES, SIZE, nonlinearity=mode[4:].lower(), dtype=wg.float64, **options)
    return {"LSTM": nn.LSTM, "GRU": nn.GRU}[mode](FEATURES, SIZE, dtype=wg.float64, **options)


def given(*shape, grad=False):
    return wg.tensor(RNG.uniform(-1, 1, shape), requires_grad=grad)


def states_of(module, batch=BATCH, grad=False):
    rows = module.num_layers * (1 + module.bidirectional)
    h0 = given(rows, batch, module.proj_size or SIZE, grad=grad)
    return (h0, given(rows, batch, SIZE, grad=grad)) if module.mode == "LSTM" else h0


def expected(module, sequences, hx):
    state = {k: v.numpy() for k, v in module.state_dict().items()}
    h0, c0 = (s.detach().numpy() for s in (hx if module.mode == "LSTM" else (hx, hx)))
    return network(module.mode, state, sequences, h0, c0, module.num_layers, 1 + module.bidirectional)


def close(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12, atol=1e-13)


OPTIONS = [
    ("RNN_TANH", {"num_layers": 2, "bidirectional": True}),
    ("RNN_RELU", {"bias": False}),
    ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("GRU", {"bias": False}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("LSTM", {"bias": False}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "proj_size": 2}),
]


@pytest.mark.parametrize(("mode", "options"), OPTIONS)
def test_networks_are_their_equations(mode, options):
    """A batch, the same packed out of order, one sequence alone, and initial states that are not given."""
    net = made(mode, **options)
    hx = states_of(net)
    x = RNG.uniform(-1, 1, (BATCH, LENGTH, FEATURES))
    outs, h_n, c_n = expected(net, x, hx)

    def turned(array):
        return array if net.batch_first else np.swapaxes(array, 0, 1)

    def check(last, h, c):
        for one, wanted in zip(last if mode == "LSTM" else [last], (h, c), strict=False):
            close(one, wanted)

    out, last = net(wg.tensor(turned(x)), hx)
    close(out, turned(np.stack(outs)))
    check(last, h_n, c_n)

    packed = packing.pack_padded_sequence(wg.tensor(turned(x)), LENGTHS, net.batch_first, enforce_sorted=False)
    cut = [one[:n] for one, n in zip(x, LENGTHS, strict=True)]
    outs, h_n, c_n = expected(net, cut, hx)
    out, last = net(packed, hx)
    assert isinstance(out, packing.PackedSequence)
    assert out.batch_sizes is packed.batch_sizes
    for found, wanted in zip(packing.unpack_sequence(out), outs, strict=True):
        close(found, wanted)
    check(last, h_n, c_n)

    zero = tuple(s * 0 for s in states_of(net, 1)) if mode == "LSTM" else states_of(net, 1) * 0
    outs, h_n, c_n = expected(net, x[:1], zero)
    out, last = net(wg.tensor(x[0]))
    close(out, outs[0])
    check(last, h_n[:, 0], c_n[:, 0])


def test_a_long_sequence_is_its_equations():
    """Over many steps the weights are laid out anew."""
    net = made("LSTM", bidirectional=True)
    x, hx = RNG.uniform(-1, 1, (9, 2, FEATURES)), states_of(net, 2)
    out, (h, c) = net(wg.tensor(x), hx)
    outs, h_n, c_n = expected(net, np.swapaxes(x, 0, 1), hx)
    close(out, np.stack(outs, 1))
    close(h, h_n)
    close(c, c_n)


@pytest.mark.parametrize(("mode", "options"), OPTIONS)
def test_derivatives_of_networks(mode, options):
    """Against differences: with respect to the input, the states and all parameters; packed and not."""
    net = made(mode, **options)
    names = net._flat_weights_names
    states = states_of(net, grad=True)
    operands = [*(states if mode == "LSTM" else [states]), *(w.detach().requires_grad_() for w in net._flat_weights)]
    x = given(*((BATCH, LENGTH) if net.batch_first else (LENGTH, BATCH)), FEATURES, grad=True)
    count = len(operands) - len(names)

    def run(input, *others, lengths=None):
        for name, value in zip(names, others[count:], strict=True):
            net._parameters.pop(name, None)
            net.__dict__[name] = value
        hx = others[:count] if mode == "LSTM" else others[0]
        if lengths is not None:
            input = packing.pack_padded_sequence(input, lengths, net.batch_first, enforce_sorted=False)
        out, last = net(input, hx)
        return (out.data if lengths else out, *(last if mode == "LSTM" else [last]))

    def joined(*inputs):
        """One tensor: every result with weights of its own, in the order of the packed form and of the plain one."""
        total = 0
        for lengths in (None, LENGTHS):
            for k, part in enumerate(run(*inputs, lengths=lengths)):
                weights = wg.tensor(np.cos(np.arange(part.numel()) + k).reshape(part.shape))
                total = total + (part * weights).sum()
        return total

    assert wg.autograd.gradcheck(joined, [x, *operands], atol=1e-7, rtol=1e-6)
    if options.get("num_layers", 1) == 1 or "proj_size" in options:
        loss = joined(x, *operands)
        first = wg.autograd.grad(loss, [x, *operands], create_graph=True)
        plain = wg.autograd.grad(joined(x, *operands), [x, *operands])
        for one, other in zip(first, plain, strict=True):  # by recorded ops, and by the layer's own kernels
            close(one, other.detach().numpy())
    if mode == "RNN_RELU":  # second derivatives of the ops themselves are the generated suite's
        assert wg.autograd.gradgradcheck(joined, [x, *operands], atol=1e-7, rtol=1e-6)


def test_gradients_in_one_kernel_derive_further():
    """The third derivative of tanh, which is derived while this runs; and the gradient of what was broadcast."""
    record = registry["rnn_tanh_gate"]
    x, h = given(1, SIZE, grad=True), given(3, SIZE)
    value = call(record, (x, h))[0]
    t = value.detach().numpy()
    for order, wanted in enumerate((1 - t**2, -2 * t * (1 - t**2), (1 - t**2) * (6 * t**2 - 2))):
        (value,) = wg.autograd.grad(value.sum(), [x], create_graph=order < 2)
        np.testing.assert_allclose(value.detach().numpy(), wanted.sum(0, keepdims=True), atol=1e-12)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells_are_a_step_of_their_network(kind):
    cell = getattr(nn, kind)(FEATURES, SIZE, dtype=wg.float64)
    net = made({"RNNCell": "RNN_TANH", "GRUCell": "GRU", "LSTMCell": "LSTM"}[kind])
    net.load_state_dict({f"{k}_l0": v for k, v in cell.state_dict().items()})
    x, hx = given(1, BATCH, FEATURES), states_of(net)
    two = kind == "LSTMCell"
    out, _ = net(x, hx)
    found = cell(x[0], tuple(s[0] for s in hx) if two else hx[0])
    close(found[0] if two else found, out[0].detach().numpy())
    alone = cell(x[0, 1], tuple(s[0, 1] for s in hx) if two else hx[0, 1])
    close(alone[0] if two else alone, out[0, 1].detach().numpy())
    close(cell(x[0])[0] if two else cell(x[0]), net(x)[0][0].detach().numpy())
    bare = getattr(nn, kind)(FEATURES, SIZE, bias=False)
    assert bare.bias_ih is None
    assert repr(bare) == f"{kind}(3, 4, bias=False)"


# Names, initial values, errors


def test_parameters_have_pytorchs_names_and_bounds():
    net = nn.LSTM(3, 16, 2, bidirectional=True, proj_size=5)
    shapes = {name: tuple(w.shape) for name, w in net.state_dict().items()}
    each = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"]
    assert list(shapes) == [f"{n}_l{k}{d}" for k in range(2) for d in ("", "_reverse") for n in each]
    assert shapes["weight_ih_l1_reverse"] == (64, 10)
    assert shapes["weight_hh_l0"] == (64, 5)
    assert shapes["weight_hr_l1"] == (5, 16)
    assert all(0.2 < abs(w.detach().numpy()).max() <= 0.25 for w in net.parameters() if w.numel() > 60)
    assert [len(part) for part in net.all_weights] == [5] * 4
    assert net.flatten_parameters() is None
    assert repr(net) == "LSTM(3, 16, proj_size=5, num_layers=2, bidirectional=True)"
    assert repr(nn.RNN(3, 4, 2, "relu", batch_first=True, dropout=0.5, bias=False)) == (
        "RNN(3, 4, num_layers=2, bias=False, batch_first=True, dropout=0.5)"
    )
    assert repr(nn.RNNCell(3, 4, nonlinearity="relu")) == "RNNCell(3, 4, nonlinearity=relu)"
    assert (nn.RNN(1, 1).mode, nn.RNN(1, 1, nonlinearity="relu").mode, nn.GRU(1, 1).mode) == (
        "RNN_TANH",
        "RNN_RELU",
        "GRU",
    )


@pytest.mark.parametrize(
    ("make", "builtin", "told"),
    [
        (lambda: nn.LSTM(3, 4.0), TypeError, "hidden_size must be an int"),
        (lambda: nn.LSTM(0, 4), ValueError, "input_size must be positive"),
        (lambda: nn.GRU(3, 4, 0), ValueError, "num_layers must be positive"),
        (lambda: nn.GRU(3, 4, dropout=2), ValueError, "between 0 and 1"),
        (lambda: nn.GRU(3, 4, dropout=True), ValueError, "between 0 and 1"),
        (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "less than hidden_size, 4"),
        (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "only LSTM has projections"),
        (lambda: nn.RNN(3, 4, nonlinearity="sigmoid"), ValueError, "'tanh' or 'relu'"),
        (lambda: nn.LSTM(3, 4)(wg.ones(2, 1, 5)), RuntimeError, r"input_size, 3, got shape \[2, 1, 5\]"),
        (lambda: nn.LSTM(3, 4)(wg.ones(3)), ValueError, "2 dimensions"),
        (lambda: nn.LSTM(3, 4)(wg.ones(0, 2, 3)), RuntimeError, "no steps"),
        (lambda: nn.LSTM(3, 4)(wg.ones(2, 1, 3, dtype=wg.float64)), ValueError, r"module.to\(float64\)"),
        (lambda: nn.LSTM(3, 4)(wg.ones(2, 1, 3), (wg.ones(1, 1, 4), wg.ones(1, 2, 4))), RuntimeError, r"hidden\[1\]"),
        (lambda: nn.LSTM(3, 4)(wg.ones(2, 3), (wg.ones(1, 1, 4),) * 2), RuntimeError, "must have 2 dimensions"),
        (lambda: nn.LSTM(3, 4)(wg.ones(2, 1, 3), wg.ones(1, 1, 4)), RuntimeError, r"\(h_0, c_0\)"),
        (lambda: nn.GRU(3, 4)(wg.ones(2, 1, 3), wg.ones(1, 2, 4)), RuntimeError, r"\(1, 1, 4\), got \[1, 2, 4\]"),
        (lambda: nn.GRU(3, 4)([1]), TypeError, "takes tensors"),
        (lambda: nn.LSTMCell(3, 4)(wg.ones(2, 5)), RuntimeError, "input_size, 3"),
        (lambda: nn.LSTMCell(3, 4)(wg.ones(2, 3), wg.ones(2, 4)), TypeError, r"\(h, c\)"),
        (lambda: nn.GRUCell(3, 4)(wg.ones(2, 2, 3)), ValueError, "1 dimension"),
        (lambda: nn.GRUCell(3, 4)(wg.ones(2, 3), wg.ones(3, 4)), RuntimeError, r"shape \[2, 4\], got \[3, 4\]"),
        (lambda: nn.RNNCell(3, 4, nonlinearity="x")(wg.ones(2, 3)), RuntimeError, "'tanh' or 'relu'"),
        (lambda: wg.gru_cell(wg.ones(2, 3), wg.ones(2, 4), wg.ones(12, 3), wg.ones(12, 5)), RuntimeError, "weight_hh"),
        (lambda: wg.gru(wg.ones(2, 1, 3), wg.ones(1, 1, 4), [wg.ones(12, 3)], True, 1, 0.0, True, False, False),
         ValueError, "4 parameters a layer"),
    ],
)  # fmt: skip
def test_errors_say_what_would_fit(make, builtin, told):
    with pytest.raises(errors.WeftgradError, match=told) as caught:
        make()
    assert isinstance(caught.value, builtin)


def test_dropout_between_one_layer_warns():
    with pytest.warns(UserWarning, match="there is only one"):
        nn.LSTM(3, 4, dropout=0.5)


# How it runs


@pytest.mark.parametrize(("options", "launches"), [({}, 0), ({"proj_size": 2}, 7)])
def test_all_steps_are_one_kernel_or_a_few_each_and_nothing_is_allocated_after_the_first(options, launches):
    net = made("LSTM", **options)
    driver = net.weight_ih_l0.device.driver
    x = {length: given(length, BATCH, FEATURES) for length in (12, 20)}

    def train(length):
        before = driver.launches
        net(x[length])[0].sum().backward()
        net.zero_grad()
        driver.synchronize()
        return driver.launches - before

    train(12)  # what the first call of a process makes once is no step's
    counted = {length: train(length) for length in (12, 20)}
    # With a projection: three launches a step forward, four back.
    assert counted[20] - counted[12] == 8 * launches
    before = wg.memory_stats("cpu")["driver_allocations"]
    for _ in range(3):
        train(12)
    assert wg.memory_stats("cpu")["driver_allocations"] == before


def test_backward_twice_and_changed_weights_are_errors():
    net = made("GRU")
    out = net(given(2, 1, FEATURES))[0].sum()
    out.backward(retain_graph=True)
    first = net.weight_hh_l0.grad.numpy().copy()
    out.backward()
    close(net.weight_hh_l0.grad, 2 * first)
    with pytest.raises(errors.FreedGraphError, match="retain_graph=True"):
        out.backward()
    out = net(given(2, 1, FEATURES))[0].sum()
    with wg.no_grad():
        net.weight_hh_l0.mul_(2.0)
    with pytest.raises(errors.VersionError, match="modified in place"):
        out.backward()


def test_dropout_between_layers_in_training_only():
    net = made("GRU", num_layers=2, dropout=1.0)
    one = made("GRU")
    one.load_state_dict({k.replace("_l1", "_l0"): v[:, :FEATURES] if k == "weight_ih_l1" else v
                         for k, v in net.state_dict().items() if "_l1" in k})  # fmt: skip
    x = given(LENGTH, BATCH, FEATURES)
    close(net(x)[0], one(x * 0)[0].detach().numpy())  # the second layer sees zeros
    assert abs((net.eval()(x)[0] - one(x * 0)[0]).detach().numpy()).max() > 1e-3


def test_only_the_gradients_that_are_wanted():
    net = made("LSTM")
    for name in ("weight_ih_l0", "bias_hh_l0"):
        getattr(net, name).requires_grad_(False)
    net(given(LENGTH, BATCH, FEATURES))[1][1].sum().backward()  # the cell state alone
    assert {n for n, p in net.named_parameters() if p.grad is not None} == {"weight_hh_l0", "bias_ih_l0"}


def test_modes_see_every_step():
    class Seen(Mode):
        names: ClassVar[list[str]] = []

        def call(self, record, operands, statics, outs, in_place):
            self.names.append(record.name)
            return self.proceed(record, operands, statics, outs, in_place)

    net, x = made("GRU"), given(LENGTH, BATCH, FEATURES, grad=True)
    net(x)[0].sum().backward()
    plain, x.grad = x.grad.numpy(), None
    with Seen() as seen:
        net(x)[0].sum().backward()
    close(x.grad, plain)
    assert [seen.names.count(name) for name in ("gru_gates", "gru_gates_grad")] == [LENGTH, LENGTH]


def test_a_sequence_in_one_kernel_is_what_its_steps_are():
    """More rows than a core takes at a time, and a product that is summed in parts, whose last vector is not full."""
    net = nn.LSTM(3, 70, bidirectional=True, dtype=wg.float64)
    x, weight = given(3, 130, 3, grad=True), given(3, 130, 140)

    def results():
        out, (h, c) = net(x)
        ((out * weight).sum() + h.sum() + (c * c).sum()).backward()
        found = [t.detach().numpy().copy() for t in (out, h, c, x.grad, *(p.grad for p in net.parameters()))]
        x.grad = None
        net.zero_grad()
        return found

    plain = results()
    with Mode():  # which sees every step
        apart = results()
    for one, other in zip(plain, apart, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_anomaly_detection_names_the_network():
    net = made("GRU")
    with wg.autograd.detect_anomaly():
        last = net(given(2, 1, FEATURES))[1]
        with pytest.raises(errors.AnomalyError, match="backward of gru"):
            last.backward(wg.full((1, 1, SIZE), float("nan"), dtype=wg.float64))


# Packing


def test_packing_and_padding():
    padded = np.arange(24.0).reshape(4, 3, 2)
    packed = packing.pack_padded_sequence(wg.tensor(padded), [2, 4, 1], enforce_sorted=False)
    rows = [(0, 1), (0, 0), (0, 2), (1, 1), (1, 0), (2, 1), (3, 1)]
    close(packed.data, np.stack([padded[t, n] for t, n in rows]))
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.unsorted_indices.tolist() == [1, 0, 2]
    back, lengths = packing.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=5)
    wanted = np.full((3, 5, 2), -1.0)
    for t, n in rows:
        wanted[n, t] = padded[t, n]
    close(back, wanted)
    assert lengths.tolist() == [2, 4, 1]
    pieces = packing.unpack_sequence(packed)
    assert [tuple(p.shape) for p in pieces] == [(2, 2), (4, 2), (1, 2)]
    again = packing.pack_sequence(pieces, enforce_sorted=False)
    close(again.data, packed.data.numpy())
    left = packing.pad_sequence(pieces, batch_first=True, padding_value=7.0, padding_side="left")
    close(left[2], np.array([[7, 7], [7, 7], [7, 7], [4, 5.0]]))
    close(packing.pad_sequence(pieces)[:, 1], padded[:, 1])
    close(packing.unpad_sequence(left, [1, 2, 3], batch_first=True)[1], padded[:2, 1])
    assert packing.invert_permutation(wg.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    assert packed.to("cpu") is packed
    assert packed.float().data.dtype is wg.float32
    assert (packed.is_cuda, packed.is_pinned(), len(packed)) == (False, False, 4)


def test_gradients_through_packing():
    """Every element is copied to one place at most, so its gradient is what arrives there."""
    padded, other = given(4, 3, 2, grad=True), given(2, 2, grad=True)
    back, _ = packing.pad_packed_sequence(packing.pack_padded_sequence(padded, [4, 2, 1]))
    arrived = RNG.uniform(-1, 1, (4, 3, 2))
    back.backward(wg.tensor(arrived))
    close(padded.grad, arrived * (np.arange(4)[:, None, None] < np.array([4, 2, 1])[:, None]))
    packing.pad_sequence([padded.detach()[:, 0], other], padding_value=2.0).backward(wg.tensor(arrived[:, :2]))
    close(other.grad, arrived[:2, 1])


@pytest.mark.parametrize(
    ("make", "builtin", "told"),
    [
        (lambda x: packing.pack_padded_sequence(x, [1, 4, 2]), RuntimeError, "enforce_sorted=False"),
        (lambda x: packing.pack_padded_sequence(x, [4, 2]), RuntimeError, "2 lengths for a batch of 3"),
        (lambda x: packing.pack_padded_sequence(x, [4, 2, 0]), RuntimeError, "a step at least"),
        (lambda x: packing.pack_padded_sequence(x, [5, 2, 1]), RuntimeError, "5, in an input of 4 steps"),
        (lambda x: packing.pack_padded_sequence(x[0, 0], [1]), IndexError, "2 dimensions"),
        (lambda x: packing.pad_packed_sequence(packing.pack_padded_sequence(x, [4, 2, 1]), total_length=3),
         ValueError, "total_length is 3"),
        (lambda x: packing.pad_packed_sequence(x), TypeError, "takes a PackedSequence"),
        (lambda x: packing.pad_sequence([]), RuntimeError, "at least one"),
        (lambda x: packing.pad_sequence([x[0], x[0, :, :1]]), RuntimeError, "alike behind"),
        (lambda x: packing.pad_sequence([x], padding_side="up"), RuntimeError, "'left' or 'right'"),
        (lambda x: packing.PackedSequence(x), ValueError, "batch_sizes"),
        (lambda x: nn.GRU(2, 3)(packing.PackedSequence(x[0], wg.tensor([1, 2]))), ValueError, "never grow"),
    ],
)  # fmt: skip
def test_packing_says_what_is_wrong(make, builtin, told):
    with pytest.raises(errors.WeftgradError, match=told) as caught:
        make(wg.ones(4, 3, 2))
    assert isinstance(caught.value, builtin)
