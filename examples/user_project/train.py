"""Compare the ops of this project with the same formulas composed from weftgrad's ops, and train a network with them.

    weftgrad generate specs/*.yaml -o gated_layers/ops
    python train.py

The first command writes the package `gated_layers.ops`: functions, kernels and derivatives.
"""

import argparse
import time

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.demo import digits

from gated_layers import GatedRMSNorm, SwiGLU, gated_rms_norm, swiglu


def composed_swiglu(x, gate):
    return x * nn.functional.silu(gate)


def composed_gated_rms_norm(x, gate, shape, weight, eps=1e-5):
    return nn.functional.rms_norm(x * nn.functional.silu(gate), shape, weight, eps)


def seconds(function, *inputs):
    """Return the seconds of a forward and a backward pass."""
    wg.synchronize()
    start = time.perf_counter()
    function(*inputs).sum().backward()
    wg.synchronize()  # waits for kernels that are still being compiled, too
    return time.perf_counter() - start


def mebibytes(function, *inputs):
    """Return the memory of the result and of the tensors that are saved for the backward pass."""
    before = wg.memory_allocated()
    result = function(*inputs)
    after = wg.memory_allocated()
    del result
    return (after - before) / 2**20


def compare(name, function, composed, *inputs, repeats):
    """Print the time and memory of two versions of an op, which are measured by turns."""
    times = [(seconds(function, *inputs), seconds(composed, *inputs)) for _ in range(repeats)]
    one_op, separate = (1e3 * min(column) for column in zip(*times, strict=True))
    memory = [mebibytes(version, *inputs) for version in (function, composed)]
    difference = (function(*inputs) - composed(*inputs)).abs().max().item()
    print(f"{name:16} {one_op:6.2f} ms {separate:6.2f} ms {separate / one_op:6.2f} x"
          f" {memory[0]:6.1f} MiB {memory[1]:6.1f} MiB {difference:9.1e}")  # fmt: skip


class Classifier(nn.Module):
    """A gated network for images of digits `(N, 64)`."""

    def __init__(self, hidden=64):
        super().__init__()
        self.input = nn.Linear(64, 2 * hidden)
        self.norm = GatedRMSNorm(hidden)
        self.feed_forward = SwiGLU(hidden, 2 * hidden)
        self.output = nn.Linear(hidden, digits.CLASSES)

    def forward(self, images):
        hidden = self.norm(*self.input(images).chunk(2, -1))
        return self.output(hidden + self.feed_forward(hidden))


def train(model, images, labels, steps, batch_size=64):
    """Train `model`, and return the loss of each step."""
    optimizer = optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(steps):
        batch = wg.randint(len(images), (batch_size,))
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=2048, help="rows of 1024 elements that are timed")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    wg.manual_seed(0)

    x, gate = (wg.randn(options.rows, 1024, requires_grad=True) for _ in range(2))
    weight = wg.ones(1024, requires_grad=True)
    print("forward, backward   one op  composed    ratio     one op   composed  difference")
    compare("swiglu", swiglu, composed_swiglu, x, gate, repeats=options.repeats)
    inputs = (x, gate, (1024,), weight)
    compare("gated_rms_norm", gated_rms_norm, composed_gated_rms_norm, *inputs, repeats=options.repeats)

    images, labels, test_images, test_labels = (wg.tensor(array) for array in digits.load())
    model = Classifier()
    losses = train(model, images.flatten(1), labels, options.steps)
    accuracy = (model(test_images.flatten(1)).argmax(1) == test_labels).float().mean().item()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
