"""Check recurrent networks on packed sequences in Triton's interpreter.

Outputs are compared with the equations in NumPy, gradients with those of the `cpu` device.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from recurrent_reference import network
from triton_running import interpreter

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn.utils import rnn as packing


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(kind):
    device, driver = interpreter("block=64,cores=2")
    rng = np.random.default_rng(0)
    cpu_net, triton_net = (getattr(nn, kind)(3, 4) for _ in range(2))
    triton_net.load_state_dict(cpu_net.state_dict())
    triton_net.to(device)
    x = rng.uniform(-1, 1, (2, 2, 3)).astype(np.float32)  # (length, batch, input size)
    lengths = [2, 1]

    def run(net, net_device):
        """Return the packed output, and the gradients of the input and all parameters."""
        sequences = wg.tensor(x, device=net_device, requires_grad=True)
        packed, _ = net(packing.pack_padded_sequence(sequences, lengths))
        (packed.data * packed.data).sum().backward()
        return packed.data.detach().cpu().numpy(), [t.grad.cpu().numpy() for t in (sequences, *net.parameters())]

    _, expected_grads = run(cpu_net, "cpu")
    output, grads = run(triton_net, device)
    state = {k: v.numpy().astype(np.float64) for k, v in cpu_net.state_dict().items()}
    zero = np.zeros((1, 2, 4))
    (first, second), _, _ = network(kind, state, [x[:n, i] for i, n in enumerate(lengths)], zero, zero, 1, 1)
    np.testing.assert_allclose(output, np.stack([first[0], second[0], first[1]]), rtol=1e-5, atol=1e-6)
    for expected_grad, grad in zip(expected_grads, grads, strict=True):
        np.testing.assert_allclose(grad, expected_grad, rtol=1e-4, atol=1e-6)
    gates = f"{kind.lower()}_gates"
    launched = [step.instance.name for step in driver.launched]
    assert [launched.count(name) for name in (gates, f"{gates}_grad")] == [2, 2]
