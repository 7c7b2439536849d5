"""Train in half types with autocast and GradScaler, recompute activations to save memory, and resume from a file.

    python examples/mixed_precision.py
    python examples/mixed_precision.py --dtype bfloat16 --file run.pt

Layers compute in the half type; weights, losses and optimizer states stay in float32. `checkpoint` keeps only the
inputs of a block and runs it again in backward (Chen et al. 2016): less memory for more time, and the same gradients.
"""

import argparse
import tempfile
import time
from pathlib import Path

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.nn import functional as F
from weftgrad.utils.checkpoint import checkpoint

WIDTH, DEPTH, BATCH_SIZE = 128, 8, 2048


class Net(nn.Module):
    """Residual blocks of two layers each, whose activations are recomputed if `recompute`."""

    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(DEPTH)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.recompute else block(x))
        return self.head(x)


class Training:
    """A network, its optimizer and its scaler."""

    def __init__(self, dtype, recompute):
        wg.manual_seed(0)
        self.dtype = dtype
        self.net = Net(recompute)
        self.optimizer = optim.AdamW(self.net.parameters(), lr=1e-3)
        # float16 gradients below 6e-8 would become 0: the loss is scaled up, and the gradients down before the step.
        self.scaler = wg.amp.GradScaler("cpu", enabled=dtype is wg.float16)
        self.parts = {"net": self.net, "optimizer": self.optimizer, "scaler": self.scaler}

    def step(self):
        """Train on one batch of random points, and return the loss."""
        x = wg.randn(BATCH_SIZE, WIDTH)
        y = (x[:, :1] * x[:, 1:2]).tanh() + x[:, 2:3]
        with wg.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not wg.float32):
            loss = F.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def save(self, path):
        state = {name: part.state_dict() for name, part in self.parts.items()}
        wg.save(state | {"random": wg.get_rng_state()}, path)

    def load(self, path):
        state = wg.load(path)
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        wg.set_rng_state(state["random"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--file", type=Path, help="where to save the run (default: a temporary file)")
    options = parser.parse_args()

    half = getattr(wg, options.dtype)
    print("layers    recompute   first loss   last loss   peak memory   step")
    for dtype, recompute in ((wg.float32, False), (half, False), (half, True)):
        run = Training(dtype, recompute)
        losses = [run.step()]
        wg.reset_peak_memory_stats("cpu")
        begin = time.perf_counter()
        losses += [run.step() for _ in range(options.steps - 1)]
        milliseconds = 1000 * (time.perf_counter() - begin) / (options.steps - 1)
        name, peak = str(dtype).split(".")[-1], wg.max_memory_allocated("cpu") / 2**20
        print(f"{name:9} {'yes' if recompute else 'no':11} {losses[0]:10.4f} {losses[-1]:11.4f} "
              f"{peak:9.1f} MiB {milliseconds:6.1f} ms")  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder, "run.pt")
        run.save(path)
        expected = [run.step() for _ in range(3)]
        resumed = Training(half, recompute=True)
        resumed.load(path)
        print("a resumed run has the same losses:", [resumed.step() for _ in range(3)] == expected)


if __name__ == "__main__":
    main()
