"""Write an operation in Python with a backward pass of its own, and train a network of binary weights with it.

    python examples/custom_function.py

`sign` has the derivative 0 almost everywhere, so nothing could be learned through it. The straight-through estimator
(Bengio et al. 2013) passes the gradient on as if `sign` were the identity on [-1, 1]. Stored in one bit each, the
weights of the two layers take 1/32 of the memory of float32 weights.
"""

import argparse

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.demo import digits
from weftgrad.nn import functional as F


class Sign(wg.autograd.Function):
    """Return -1 or 1 forward; backward, the gradient where the input lies in [-1, 1], and 0 elsewhere."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return wg.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class BinaryLinear(nn.Linear):
    """A linear layer whose weights are -1 or 1 times one scale per output."""

    def forward(self, x):
        scale = self.weight.detach().abs().mean(1, keepdim=True)
        return F.linear(x, Sign.apply(self.weight) * scale, self.bias)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()

    x = wg.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
    Sign.apply(x).sum().backward()
    print(f"inputs {x.tolist()}  gradient {x.grad.tolist()}")

    wg.manual_seed(0)
    train_images, train_labels, test_images, test_labels = (wg.tensor(a) for a in digits.load())
    net = nn.Sequential(
        nn.Flatten(), BinaryLinear(64, 256), nn.BatchNorm1d(256), nn.Hardtanh(), BinaryLinear(256, 10)
    )  # fmt: skip
    optimizer = optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, options.steps + 1):
        batch = wg.randint(len(train_labels), (64,))
        loss = F.cross_entropy(net(train_images[batch]), train_labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or step == options.steps:
            net.eval()
            with wg.no_grad():
                accuracy = (net(test_images).argmax(1) == test_labels).float().mean().item()
            net.train()
            print(f"step {step:4d}  loss {loss.item():.3f}  test accuracy {100 * accuracy:.2f} %")
    weights = sum(layer.weight.numel() for layer in net if isinstance(layer, BinaryLinear))
    print(f"{weights:,} weights take {weights // 8:,} bytes instead of {weights * 4:,}")


if __name__ == "__main__":
    main()
