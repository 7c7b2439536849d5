"""Train a convolutional network on several processes, and continue from a checkpoint with the same bits.

    weftgrad launch -n 2 examples/ddp.py            # or: mpiexec -n 2 python examples/ddp.py

Each rank computes the gradients of its part of every batch of handwritten digits, and `DistributedDataParallel`
averages them while backward computes further ones. In the middle of the last epoch the ranks save a checkpoint. A new
model, optimizer and data loader continue from it, as after a restart, and end with the same bits.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import weftgrad as wg
from weftgrad import distributed as dist
from weftgrad import nn
from weftgrad.demo import digits
from weftgrad.distributed import checkpoint
from weftgrad.nn.parallel import DistributedDataParallel
from weftgrad.utils.data import DataLoader, DistributedSampler, TensorDataset


class Run:
    """Model, optimizer and data of a rank."""

    def __init__(self, dataset: TensorDataset, batch: int):
        wg.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.SyncBatchNorm(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(256, digits.CLASSES),
        )  # fmt: skip
        self.model = DistributedDataParallel(model)
        self.optimizer = wg.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.sampler = DistributedSampler(dataset, drop_last=True)
        self.loader = DataLoader(dataset, batch_size=batch // dist.get_world_size(), sampler=self.sampler)

    def train(self, save_after: int = 0, folder: Path | None = None) -> dict[str, object]:
        """Train for the rest of an epoch, and save a checkpoint after some batches.

        Returns:
            The loader's position at the checkpoint.
        """
        position: dict[str, object] = {}
        for count, (images, labels) in enumerate(self.loader, 1):
            self.optimizer.zero_grad()
            self.loss = nn.functional.cross_entropy(self.model(images), labels)
            self.loss.backward()
            self.optimizer.step()
            if count == save_after and folder is not None:
                checkpoint.save(self.state(), checkpoint_id=folder)
                position = self.loader.state_dict()
        return position

    def state(self) -> dict[str, object]:
        model, optimizer = checkpoint.get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def restore(self, folder: Path, position: dict[str, object]) -> None:
        state = self.state()
        checkpoint.load(state, checkpoint_id=folder)
        checkpoint.set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        self.loader.load_state_dict(position)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64, help="samples of all ranks together")
    options = parser.parse_args()
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = map(wg.from_numpy, digits.load())
    dataset = TensorDataset(images, labels)
    folder = [tempfile.mkdtemp() if rank == 0 else ""]  # all ranks need to reach it
    dist.broadcast_object_list(folder, 0)

    run = Run(dataset, options.batch)
    for epoch in range(options.epochs):
        run.sampler.set_epoch(epoch)
        is_last = epoch == options.epochs - 1
        position = run.train(save_after=5 if is_last else 0, folder=Path(folder[0]))
        loss = run.loss.detach()
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"{ranks} ranks, epoch {epoch + 1}: loss {loss.item():.4f}")

    resumed = Run(dataset, options.batch)
    resumed.restore(Path(folder[0]), position)
    resumed.train()
    pairs = zip(run.model.parameters(), resumed.model.parameters(), strict=True)
    is_same = all(wg.equal(a, b) for a, b in pairs)
    with wg.no_grad():
        correct = (run.model.eval()(test_images).argmax(1) == test_labels).float().mean().item()
    if rank == 0:
        print(f"test accuracy {100 * correct:.1f}; resumed run has {'the same' if is_same else 'other'} bits")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
