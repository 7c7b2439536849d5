"""Check recurrent networks: every kind and option against NumPy equations, derivatives, packed sequences, errors."""

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
LENGTHS = [2, 4, 4]  # no step has a single row, which would use other kernels
RNG = np.random.default_rng(8)


def make_network(mode, **options):
    if mode.startswith("RNN"):
        return nn.RNN(FEATURES, SIZE, nonlinearity=mode[4:].lower(), dtype=wg.float64, **options)
    return {"LSTM": nn.LSTM, "GRU": nn.GRU}[mode](FEATURES, SIZE, dtype=wg.float64, **options)


def random_tensor(*shape, grad=False):
    return wg.tensor(RNG.uniform(-1, 1, shape), requires_grad=grad)


def random_states(module, batch=BATCH, grad=False):
    rows = module.num_layers * (1 + module.bidirectional)
    h0 = random_tensor(rows, batch, module.proj_size or SIZE, grad=grad)
    return (h0, random_tensor(rows, batch, SIZE, grad=grad)) if module.mode == "LSTM" else h0


def reference_outputs(module, sequences, hx):
    state = {k: v.numpy() for k, v in module.state_dict().items()}
    h0, c0 = (s.detach().numpy() for s in (hx if module.mode == "LSTM" else (hx, hx)))
    return network(module.mode, state, sequences, h0, c0, module.num_layers, 1 + module.bidirectional)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-12, atol=1e-13)


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
def test_networks_match_their_equations(mode, options):
    """Check a batch, the same batch packed in any order, a single sequence, and default initial states."""
    net = make_network(mode, **options)
    hx = random_states(net)
    x = RNG.uniform(-1, 1, (BATCH, LENGTH, FEATURES))
    outs, h_n, c_n = reference_outputs(net, x, hx)

    def to_layout(array):
        return array if net.batch_first else np.swapaxes(array, 0, 1)

    def check(last, h, c):
        for actual, expected in zip(last if mode == "LSTM" else [last], (h, c), strict=False):
            assert_close(actual, expected)

    out, last = net(wg.tensor(to_layout(x)), hx)
    assert_close(out, to_layout(np.stack(outs)))
    check(last, h_n, c_n)

    packed = packing.pack_padded_sequence(wg.tensor(to_layout(x)), LENGTHS, net.batch_first, enforce_sorted=False)
    sequences = [sequence[:n] for sequence, n in zip(x, LENGTHS, strict=True)]
    outs, h_n, c_n = reference_outputs(net, sequences, hx)
    out, last = net(packed, hx)
    assert isinstance(out, packing.PackedSequence)
    assert out.batch_sizes is packed.batch_sizes
    for actual, expected in zip(packing.unpack_sequence(out), outs, strict=True):
        assert_close(actual, expected)
    check(last, h_n, c_n)

    zero = tuple(s * 0 for s in random_states(net, 1)) if mode == "LSTM" else random_states(net, 1) * 0
    outs, h_n, c_n = reference_outputs(net, x[:1], zero)
    out, last = net(wg.tensor(x[0]))
    assert_close(out, outs[0])
    check(last, h_n[:, 0], c_n[:, 0])


def test_a_long_sequence_matches_its_equations():
    """For many steps the network repacks its weights."""
    net = make_network("LSTM", bidirectional=True)
    x, hx = RNG.uniform(-1, 1, (9, 2, FEATURES)), random_states(net, 2)
    out, (h, c) = net(wg.tensor(x), hx)
    outs, h_n, c_n = reference_outputs(net, np.swapaxes(x, 0, 1), hx)
    assert_close(out, np.stack(outs, 1))
    assert_close(h, h_n)
    assert_close(c, c_n)


@pytest.mark.parametrize(("mode", "options"), OPTIONS)
def test_derivatives_of_networks(mode, options):
    """Check gradients for the input, the states and all parameters against finite differences, packed and padded."""
    net = make_network(mode, **options)
    names = net._flat_weights_names
    states = random_states(net, grad=True)
    operands = [*(states if mode == "LSTM" else [states]), *(w.detach().requires_grad_() for w in net._flat_weights)]
    x = random_tensor(*((BATCH, LENGTH) if net.batch_first else (LENGTH, BATCH)), FEATURES, grad=True)
    count = len(operands) - len(names)

    def run_network(input, *states_and_weights, lengths=None):
        for name, value in zip(names, states_and_weights[count:], strict=True):
            net._parameters.pop(name, None)
            net.__dict__[name] = value
        hx = states_and_weights[:count] if mode == "LSTM" else states_and_weights[0]
        if lengths is not None:
            input = packing.pack_padded_sequence(input, lengths, net.batch_first, enforce_sorted=False)
        out, last = net(input, hx)
        return (out.data if lengths else out, *(last if mode == "LSTM" else [last]))

    def weighted_sum(*inputs):
        """Return a scalar: the sum of all outputs times fixed weights, for the padded and for the packed input."""
        total = 0
        for lengths in (None, LENGTHS):
            for k, part in enumerate(run_network(*inputs, lengths=lengths)):
                weights = wg.tensor(np.cos(np.arange(part.numel()) + k).reshape(part.shape))
                total = total + (part * weights).sum()
        return total

    assert wg.autograd.gradcheck(weighted_sum, [x, *operands], atol=1e-7, rtol=1e-6)
    if options.get("num_layers", 1) == 1 or "proj_size" in options:
        loss = weighted_sum(x, *operands)
        first = wg.autograd.grad(loss, [x, *operands], create_graph=True)
        plain = wg.autograd.grad(weighted_sum(x, *operands), [x, *operands])
        for actual, expected in zip(first, plain, strict=True):  # by recorded ops, and by the layer's own kernels
            assert_close(actual, expected.detach().numpy())
    if mode == "RNN_RELU":  # the generated suite tests second derivatives of the ops
        assert wg.autograd.gradgradcheck(weighted_sum, [x, *operands], atol=1e-7, rtol=1e-6)


def test_fused_gradients_have_higher_derivatives():
    """Check three derivatives of tanh, the third of them derived during this test, for a broadcast operand."""
    record = registry["rnn_tanh_gate"]
    x, h = random_tensor(1, SIZE, grad=True), random_tensor(3, SIZE)
    value = call(record, (x, h))[0]
    t = value.detach().numpy()
    for order, derivative in enumerate((1 - t**2, -2 * t * (1 - t**2), (1 - t**2) * (6 * t**2 - 2))):
        (value,) = wg.autograd.grad(value.sum(), [x], create_graph=order < 2)
        np.testing.assert_allclose(value.detach().numpy(), derivative.sum(0, keepdims=True), atol=1e-12)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells_equal_one_step_of_their_network(kind):
    cell = getattr(nn, kind)(FEATURES, SIZE, dtype=wg.float64)
    net = make_network({"RNNCell": "RNN_TANH", "GRUCell": "GRU", "LSTMCell": "LSTM"}[kind])
    net.load_state_dict({f"{k}_l0": v for k, v in cell.state_dict().items()})
    x, hx = random_tensor(1, BATCH, FEATURES), random_states(net)
    is_lstm = kind == "LSTMCell"
    out, _ = net(x, hx)
    output = cell(x[0], tuple(s[0] for s in hx) if is_lstm else hx[0])
    assert_close(output[0] if is_lstm else output, out[0].detach().numpy())
    unbatched = cell(x[0, 1], tuple(s[0, 1] for s in hx) if is_lstm else hx[0, 1])
    assert_close(unbatched[0] if is_lstm else unbatched, out[0, 1].detach().numpy())
    assert_close(cell(x[0])[0] if is_lstm else cell(x[0]), net(x)[0][0].detach().numpy())
    without_bias = getattr(nn, kind)(FEATURES, SIZE, bias=False)
    assert without_bias.bias_ih is None
    assert repr(without_bias) == f"{kind}(3, 4, bias=False)"


# Names, initial values, errors


def test_parameters_have_pytorchs_names_and_bounds():
    net = nn.LSTM(3, 16, 2, bidirectional=True, proj_size=5)
    shapes = {name: tuple(w.shape) for name, w in net.state_dict().items()}
    prefixes = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"]
    assert list(shapes) == [f"{n}_l{k}{d}" for k in range(2) for d in ("", "_reverse") for n in prefixes]
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
    ("make", "builtin", "message"),
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
         ValueError, "4 parameters for each layer"),
    ],
)  # fmt: skip
def test_error_messages_name_the_expected_value(make, builtin, message):
    with pytest.raises(errors.WeftgradError, match=message) as excinfo:
        make()
    assert isinstance(excinfo.value, builtin)


def test_dropout_with_one_layer_warns():
    with pytest.warns(UserWarning, match="there is only one"):
        nn.LSTM(3, 4, dropout=0.5)


# Launches, graphs, modes


@pytest.mark.parametrize(("options", "launches"), [({}, 0), ({"proj_size": 2}, 7)])
def test_launches_per_step_and_no_allocations_after_the_first_run(options, launches):
    net = make_network("LSTM", **options)
    driver = net.weight_ih_l0.device.driver
    x = {length: random_tensor(length, BATCH, FEATURES) for length in (12, 20)}

    def train(length):
        launches_before = driver.launches
        net(x[length])[0].sum().backward()
        net.zero_grad()
        driver.synchronize()
        return driver.launches - launches_before

    train(12)  # work that the first call of a process does once is not counted
    launch_counts = {length: train(length) for length in (12, 20)}
    # With a projection: three launches per step forward, four backward.
    assert launch_counts[20] - launch_counts[12] == 8 * launches
    allocations = wg.memory_stats("cpu")["driver_allocations"]
    for _ in range(3):
        train(12)
    assert wg.memory_stats("cpu")["driver_allocations"] == allocations


def test_backward_twice_and_changed_weights_are_errors():
    net = make_network("GRU")
    out = net(random_tensor(2, 1, FEATURES))[0].sum()
    out.backward(retain_graph=True)
    first = net.weight_hh_l0.grad.numpy().copy()
    out.backward()
    assert_close(net.weight_hh_l0.grad, 2 * first)
    with pytest.raises(errors.FreedGraphError, match="retain_graph=True"):
        out.backward()
    out = net(random_tensor(2, 1, FEATURES))[0].sum()
    with wg.no_grad():
        net.weight_hh_l0.mul_(2.0)
    with pytest.raises(errors.VersionError, match="modified in place"):
        out.backward()


def test_dropout_between_layers_in_training_only():
    net = make_network("GRU", num_layers=2, dropout=1.0)
    second_layer = make_network("GRU")
    second_layer.load_state_dict({k.replace("_l1", "_l0"): v[:, :FEATURES] if k == "weight_ih_l1" else v
                         for k, v in net.state_dict().items() if "_l1" in k})  # fmt: skip
    x = random_tensor(LENGTH, BATCH, FEATURES)
    assert_close(net(x)[0], second_layer(x * 0)[0].detach().numpy())  # the second layer sees zeros
    assert abs((net.eval()(x)[0] - second_layer(x * 0)[0]).detach().numpy()).max() > 1e-3


def test_only_required_gradients_are_computed():
    net = make_network("LSTM")
    for name in ("weight_ih_l0", "bias_hh_l0"):
        getattr(net, name).requires_grad_(False)
    net(random_tensor(LENGTH, BATCH, FEATURES))[1][1].sum().backward()  # the cell state alone
    assert {n for n, p in net.named_parameters() if p.grad is not None} == {"weight_hh_l0", "bias_ih_l0"}


def test_modes_see_every_step():
    class Recorder(Mode):
        names: ClassVar[list[str]] = []

        def call(self, record, operands, statics, outs, in_place):
            self.names.append(record.name)
            return self.proceed(record, operands, statics, outs, in_place)

    net, x = make_network("GRU"), random_tensor(LENGTH, BATCH, FEATURES, grad=True)
    net(x)[0].sum().backward()
    plain, x.grad = x.grad.numpy(), None
    with Recorder() as recorder:
        net(x)[0].sum().backward()
    assert_close(x.grad, plain)
    assert [recorder.names.count(name) for name in ("gru_gates", "gru_gates_grad")] == [LENGTH, LENGTH]


def test_a_fused_sequence_equals_its_single_steps():
    """Use more rows than one core's share, and a product summed in parts whose last vector is partial."""
    net = nn.LSTM(3, 70, bidirectional=True, dtype=wg.float64)
    x, weight = random_tensor(3, 130, 3, grad=True), random_tensor(3, 130, 140)

    def results():
        out, (h, c) = net(x)
        ((out * weight).sum() + h.sum() + (c * c).sum()).backward()
        tensors = [t.detach().numpy().copy() for t in (out, h, c, x.grad, *(p.grad for p in net.parameters()))]
        x.grad = None
        net.zero_grad()
        return tensors

    plain = results()
    with Mode():  # a mode makes the network run step by step
        stepwise = results()
    for actual, expected in zip(plain, stepwise, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-12)


def test_anomaly_detection_names_the_network():
    net = make_network("GRU")
    with wg.autograd.detect_anomaly():
        last = net(random_tensor(2, 1, FEATURES))[1]
        with pytest.raises(errors.AnomalyError, match="backward of gru"):
            last.backward(wg.full((1, 1, SIZE), float("nan"), dtype=wg.float64))


# Packing


def test_packing_and_padding():
    padded = np.arange(24.0).reshape(4, 3, 2)
    packed = packing.pack_padded_sequence(wg.tensor(padded), [2, 4, 1], enforce_sorted=False)
    rows = [(0, 1), (0, 0), (0, 2), (1, 1), (1, 0), (2, 1), (3, 1)]
    assert_close(packed.data, np.stack([padded[t, n] for t, n in rows]))
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.unsorted_indices.tolist() == [1, 0, 2]
    unpacked, lengths = packing.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=5)
    expected = np.full((3, 5, 2), -1.0)
    for t, n in rows:
        expected[n, t] = padded[t, n]
    assert_close(unpacked, expected)
    assert lengths.tolist() == [2, 4, 1]
    pieces = packing.unpack_sequence(packed)
    assert [tuple(p.shape) for p in pieces] == [(2, 2), (4, 2), (1, 2)]
    repacked = packing.pack_sequence(pieces, enforce_sorted=False)
    assert_close(repacked.data, packed.data.numpy())
    left_padded = packing.pad_sequence(pieces, batch_first=True, padding_value=7.0, padding_side="left")
    assert_close(left_padded[2], np.array([[7, 7], [7, 7], [7, 7], [4, 5.0]]))
    assert_close(packing.pad_sequence(pieces)[:, 1], padded[:, 1])
    assert_close(packing.unpad_sequence(left_padded, [1, 2, 3], batch_first=True)[1], padded[:2, 1])
    assert packing.invert_permutation(wg.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    assert packed.to("cpu") is packed
    assert packed.float().data.dtype is wg.float32
    assert (packed.is_cuda, packed.is_pinned(), len(packed)) == (False, False, 4)


def test_gradients_through_packing():
    """Packing copies each element to at most one position, so its gradient is the gradient of that copy."""
    padded, sequence = random_tensor(4, 3, 2, grad=True), random_tensor(2, 2, grad=True)
    unpacked, _ = packing.pad_packed_sequence(packing.pack_padded_sequence(padded, [4, 2, 1]))
    grad = RNG.uniform(-1, 1, (4, 3, 2))
    unpacked.backward(wg.tensor(grad))
    assert_close(padded.grad, grad * (np.arange(4)[:, None, None] < np.array([4, 2, 1])[:, None]))
    packing.pad_sequence([padded.detach()[:, 0], sequence], padding_value=2.0).backward(wg.tensor(grad[:, :2]))
    assert_close(sequence.grad, grad[:2, 1])


@pytest.mark.parametrize(
    ("make", "builtin", "message"),
    [
        (lambda x: packing.pack_padded_sequence(x, [1, 4, 2]), RuntimeError, "enforce_sorted=False"),
        (lambda x: packing.pack_padded_sequence(x, [4, 2]), RuntimeError, "2 lengths for a batch of 3"),
        (lambda x: packing.pack_padded_sequence(x, [4, 2, 0]), RuntimeError, "at least one step"),
        (lambda x: packing.pack_padded_sequence(x, [5, 2, 1]), RuntimeError, "5 steps, the input only 4"),
        (lambda x: packing.pack_padded_sequence(x[0, 0], [1]), IndexError, "2 dimensions"),
        (lambda x: packing.pad_packed_sequence(packing.pack_padded_sequence(x, [4, 2, 1]), total_length=3),
         ValueError, "total_length is 3"),
        (lambda x: packing.pad_packed_sequence(x), TypeError, "takes a PackedSequence"),
        (lambda x: packing.pad_sequence([]), RuntimeError, "at least one"),
        (lambda x: packing.pad_sequence([x[0], x[0, :, :1]]), RuntimeError, "equal shapes"),
        (lambda x: packing.pad_sequence([x], padding_side="up"), RuntimeError, "'left' or 'right'"),
        (lambda x: packing.PackedSequence(x), ValueError, "batch_sizes"),
        (lambda x: nn.GRU(2, 3)(packing.PackedSequence(x[0], wg.tensor([1, 2]))), ValueError, "never grow"),
    ],
)  # fmt: skip
def test_errors_of_packing(make, builtin, message):
    with pytest.raises(errors.WeftgradError, match=message) as excinfo:
        make(wg.ones(4, 3, 2))
    assert isinstance(excinfo.value, builtin)
