"""Train a network whose activation is an op of your own, from own_op.yaml, with parameters that are learned.

    python examples/own_op.py

`snake(x, alpha) = x + sin(alpha x)^2 / alpha` (Ziyin et al. 2020) lets a network continue a periodic function beyond
the points that it was trained on. No kernel and no backward pass is written: both come from the formula in own_op.yaml.
"""

import argparse
from pathlib import Path

import weftgrad as wg
from weftgrad import nn, optim

ops = wg.ops.load(Path(__file__).with_name("own_op.yaml"))


class Snake(nn.Module):
    """Apply `snake` with one learned frequency for each of `features`."""

    def __init__(self, features):
        super().__init__()
        self.alpha = nn.Parameter(wg.full((features,), 2.0))

    def forward(self, x):
        return ops.snake(x, self.alpha)


def train(activations, x, y, steps):
    """Return a network of two hidden layers, trained to map `x` to `y`."""
    wg.manual_seed(0)
    first, second = activations
    net = nn.Sequential(nn.Linear(1, 64), first, nn.Linear(64, 64), second, nn.Linear(64, 1))
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()

    alpha = wg.rand(3, dtype=wg.float64) + 0.5
    is_right = wg.autograd.gradcheck(
        ops.snake, (wg.randn(4, 3, dtype=wg.float64, requires_grad=True), alpha.requires_grad_())
    )
    print(f"derivatives agree with finite differences: {is_right}")

    def target(x):
        return wg.sin(3 * x) + x / 2

    within = wg.linspace(-3, 3, 256).unsqueeze(1)
    beyond = wg.linspace(3, 5, 128).unsqueeze(1)
    print("mean squared error          within     beyond")
    for name, activations in {"snake": (Snake(64), Snake(64)), "relu": (nn.ReLU(), nn.ReLU())}.items():
        net = train(activations, within, target(within), options.steps)
        with wg.no_grad():
            errors = [nn.functional.mse_loss(net(x), target(x)).item() for x in (within, beyond)]
        print(f"{name:24} {errors[0]:10.5f} {errors[1]:10.5f}")


if __name__ == "__main__":
    main()
