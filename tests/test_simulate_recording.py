"""Check the recorded training step, from which predictions are made."""

import json
import time

import pytest
from simulated_machines import machine, timeline

import weftgrad as wg
from weftgrad.distributed import simulate as sim
from weftgrad.runtime.errors import ArgumentError


class Residual(wg.nn.Module):
    """Query, key and value matrices with one input, a matrix behind them, and an embedding before."""

    def __init__(self):
        super().__init__()
        self.table = wg.nn.Embedding(10, 8)
        self.norm = wg.nn.LayerNorm(8)
        self.q, self.k, self.v = (wg.nn.Linear(8, 8, bias=False) for _ in range(3))
        self.out = wg.nn.Linear(8, 8)

    def forward(self, codes):
        x = self.norm(self.table(codes))
        return self.out(self.q(x) * self.k(x) + self.v(x))


def record(model, batch, **options):
    optimizer = wg.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        optimizer.step()

    return sim.record_timeline(step, model, repeats=2, **options)


def test_a_recorded_step_has_layers_gradients_and_bytes():
    recorded = record(Residual(), wg.zeros(4, 3, dtype=wg.int64), name="r")
    assert [layer.name for layer in recorded.layers] == ["table", "norm", "q", "k", "v", "out"]
    assert [layer.role for layer in recorded.layers] == ["table", "replicated", "column", "column", "column", "row"]
    assert [layer.output_bytes for layer in recorded.layers] == [4 * 3 * 8 * 4] * 6
    assert [layer.parameter_bytes for layer in recorded.layers] == [320, 64, 256, 256, 256, 288]
    names = [gradient.name for gradient in recorded.gradients]
    assert sorted(names[:2]) == ["out.bias", "out.weight"]
    assert names[-1] == "table.weight"
    assert recorded.layers[recorded.gradients[-1].layer].name == "table"
    assert recorded.gradient_bytes == recorded.parameter_bytes == 1440
    assert 2 * 1440 <= recorded.optimizer_bytes <= 2 * 1440 + 6 * 64  # Adam's two moments, and counters of steps
    assert recorded.forward_seconds > 0
    assert recorded.backward_seconds > 0
    assert recorded.update_seconds > 0
    assert sim.predict(recorded, machine(), sim.Plan(), 1).step_seconds == pytest.approx(recorded.step_seconds)


class Sleep(wg.autograd.Function):
    """Return the input, 80 ms later; so does the gradient."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.08)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.08)
        return grad.clone()


class Slow(wg.nn.Linear):
    """A linear layer that takes 80 ms in forward, and before its gradients."""

    def forward(self, x):
        return Sleep.apply(super().forward(x))


def test_a_slow_layer_takes_its_share_of_the_step():
    model = wg.nn.Sequential(wg.nn.Linear(4, 4), Slow(4, 4), wg.nn.Linear(4, 4))
    for _ in range(20):  # other programs may delay any layer
        recorded = record(model, wg.ones(2, 4), warmup=1)
        assert recorded.step_seconds >= 0.16
        seconds = {gradient.name: gradient.seconds for gradient in recorded.gradients}
        forward = [layer.forward_seconds for layer in recorded.layers]
        has_slowest_forward = forward[1] > 2 * max(forward[0], forward[2])
        has_slowest_backward = seconds["1.weight"] + seconds["1.bias"] > 2 * (seconds["2.weight"] + seconds["2.bias"])
        if has_slowest_forward and has_slowest_backward:
            break
    assert has_slowest_forward, forward
    assert has_slowest_backward, seconds


def test_activations_are_what_memory_grew_by():
    recorded = record(wg.nn.Sequential(wg.nn.Linear(16, 4096), wg.nn.Linear(4096, 16)), wg.ones(256, 16), warmup=1)
    assert 256 * 4096 * 4 <= recorded.layers[0].activation_bytes < 1.5 * 256 * 4096 * 4


def test_parameters_used_twice_and_frozen_ones():
    """A shared matrix arrives once, with its last use; a frozen one never."""
    shared, frozen = wg.nn.Linear(8, 8), wg.nn.Linear(8, 8)
    frozen.requires_grad_(False)
    recorded = record(wg.nn.Sequential(shared, frozen, shared), wg.ones(2, 8))
    assert sorted(gradient.name for gradient in recorded.gradients) == ["0.bias", "0.weight"]
    assert [layer.name for layer in recorded.layers] == ["0", "1"]
    assert recorded.parameter_bytes == 2 * recorded.gradient_bytes


def test_parameters_of_a_module_that_is_not_called_belong_to_the_caller():
    model = wg.nn.MultiheadAttention(8, 2, batch_first=True)
    optimizer = wg.optim.SGD(model.parameters(), lr=0.1)
    x = wg.ones(2, 3, 8)

    def step():
        optimizer.zero_grad()
        model(x, x, x)[0].sum().backward()
        optimizer.step()

    recorded = sim.record_timeline(step, model, repeats=1)
    assert recorded.parameter_bytes == sum(4 * p.numel() for p in model.parameters())
    assert len(recorded.gradients) == 4
    assert [layer.role for layer in recorded.layers] == ["block"]


def test_an_asynchronous_device_is_timed_by_its_kernels():
    if "opencl:0" not in [str(device) for device in wg.devices()]:
        pytest.skip("needs an OpenCL device")
    model = wg.nn.Sequential(wg.nn.Linear(8, 8), wg.nn.Linear(8, 8)).to("opencl:0")
    recorded = record(model, wg.ones(4, 8, device="opencl:0"))
    assert recorded.device == "opencl:0"
    assert len(recorded.gradients) == 4
    assert recorded.backward_seconds > 0


def test_a_step_without_gradients_is_refused():
    model = wg.nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match="1 calls of layers and 0 gradients"):
        sim.record_timeline(lambda: model(wg.ones(1, 2)), model)
    with pytest.raises(ArgumentError, match="needs parameters"):
        sim.record_timeline(lambda: None, wg.nn.ReLU())


def test_recording_leaves_no_hooks():
    model = wg.nn.Linear(2, 2)
    record(model, wg.ones(1, 2))
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def test_a_timeline_is_saved_and_loaded(tmp_path):
    step = timeline()
    step.save(tmp_path / "step.json")
    assert sim.Timeline.load(tmp_path / "step.json") == step
    assert step.with_step_seconds(1.0).step_seconds == pytest.approx(1.0)
    content = json.loads((tmp_path / "step.json").read_text())
    for change, message in (
        ({"format": 9}, "no timeline of format 1"),
        ({"gradients": [{"name": "x"}]}, "malformed"),
        ({"layers": []}, "needs a layer"),
        ({"gradients": [{"name": "x", "layer": 99, "nbytes": 1, "seconds": 1.0}]}, "outside 0 to 7"),
        ({"layers": [{**content["layers"][0], "role": "diagonal"}]}, "role is one of"),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(ArgumentError, match=message):
            sim.Timeline.load(tmp_path / "bad.json")
    with pytest.raises(ArgumentError, match="cannot be read"):
        sim.Timeline.load(tmp_path / "missing.json")
