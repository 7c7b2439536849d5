"""Check recurrent networks on packed sequences in Triton's interpreter.

Outputs are compared with the equations in NumPy, gradients with those of the CPU device.
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
    net = getattr(nn, kind)(3, 4)
    triton_net = getattr(nn, kind)(3, 4)
    triton_net.load_state_dict(net.state_dict())
    triton_net.to(device)
    x = rng.uniform(-1, 1, (2, 2, 3)).astype(np.float32)
    grads = []
    for module, module_device in ((net, "cpu"), (triton_net, device)):
        sequence = wg.tensor(x, device=module_device, requires_grad=True)
        out, _ = module(packing.pack_padded_sequence(sequence, [2, 1]))
        output = out.data.detach().cpu().numpy()
        (out.data * out.data).sum().backward()
        grads.append([t.grad.cpu().numpy() for t in (sequence, *module.parameters())])
    state = {k: v.numpy().astype(np.float64) for k, v in net.state_dict().items()}
    zero = np.zeros((1, 2, 4))
    outs, _, _ = network(kind, state, [x[:2, 0], x[:1, 1]], zero, zero, 1, 1)
    np.testing.assert_allclose(output, np.stack([outs[0][0], outs[1][0], outs[0][1]]), rtol=1e-5, atol=1e-6)
    for expected, actual in zip(*grads, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
    gates = f"{kind.lower()}_gates"
    launched = [step.instance.name for step in driver.launched]
    assert [launched.count(name) for name in (gates, f"{gates}_grad")] == [2, 2]
