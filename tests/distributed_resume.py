"""A rank of a training that fails and goes on: `distributed_resume.py FOLDER FAILURES`, under `launch --restarts`.

The ranks train with `DistributedDataParallel`, `SyncBatchNorm`, dropout, a learning rate schedule and shuffled data,
and save a checkpoint every third batch. In each of the first runs, as many as FAILURES, a rank is killed or raises.
Rank 0 prints `BITS` with a digest of everything that the training has computed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad import nn
from weftgrad.distributed import checkpoint
from weftgrad.nn.parallel import DistributedDataParallel
from weftgrad.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCHES, SAMPLES = 3, 8, 4
FAILING_STEPS = (5, 13, 20)  # each is two batches or one after a checkpoint, in another epoch


class Training:
    """Model, optimizer and data of a rank, at a position in an epoch."""

    def __init__(self) -> None:
        wg.manual_seed(0)
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Linear(6, 16), nn.SyncBatchNorm(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))
        )
        self.optimizer = wg.optim.AdamW(self.model.parameters(), lr=0.02)
        self.schedule = wg.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, EPOCHS * BATCHES)
        generator = wg.Generator().manual_seed(1)
        size = dist.get_world_size()
        count = BATCHES * SAMPLES * size
        data = TensorDataset(wg.randn(count, 6, generator=generator), wg.randint(0, 3, (count,), generator=generator))
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=SAMPLES, sampler=self.sampler)
        self.epoch, self.step = 0, 0
        self.losses: list[float] = []
        wg.manual_seed(100 + dist.get_rank())  # other dropout on every rank

    def save(self, folder: Path) -> None:
        model, optimizer = checkpoint.get_state_dict(self.model, self.optimizer)
        own = {
            "loader": self.loader.state_dict(), "random": wg.get_rng_state(), "epoch": self.epoch, "step": self.step,
            "losses": self.losses, "schedule": self.schedule.state_dict(),
        }  # fmt: skip
        path = folder / f"step{self.step}"
        path.mkdir(exist_ok=True)
        wg.save(own, path / f"rank{dist.get_rank()}.pt")
        dist.barrier()
        checkpoint.save({"model": model, "optimizer": optimizer}, checkpoint_id=path)

    def restore(self, path: Path) -> None:
        model, optimizer = checkpoint.get_state_dict(self.model, self.optimizer)
        checkpoint.load({"model": model, "optimizer": optimizer}, checkpoint_id=path)
        checkpoint.set_state_dict(self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer)
        own = wg.load(path / f"rank{dist.get_rank()}.pt")
        self.loader.load_state_dict(own["loader"])
        self.schedule.load_state_dict(own["schedule"])
        wg.set_rng_state(own["random"])
        self.epoch, self.step, self.losses = own["epoch"], own["step"], own["losses"]

    def run(self, folder: Path, failing_step: int) -> None:
        while self.epoch < EPOCHS:
            self.sampler.set_epoch(self.epoch)
            for inputs, labels in self.loader:
                if self.step == failing_step:
                    fail(failing_step)
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(inputs), labels)
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.losses.append(loss.item())
                self.step += 1
                if self.step % 3 == 0:
                    self.save(folder)
            self.epoch += 1

    def digest(self) -> str:
        """Return a digest of what all ranks have: losses, parameters, buffers, optimizer and random state."""
        tensors = [*self.model.state_dict().values()]
        for state in self.optimizer.state_dict()["state"].values():
            tensors += [value for value in state.values() if isinstance(value, wg.Tensor)]
        own = repr(self.losses).encode() + wg.rand(3).numpy().tobytes()
        own += b"".join(tensor.numpy().tobytes() for tensor in tensors)
        of_ranks: list[bytes] = [b""] * dist.get_world_size()
        dist.all_gather_object(of_ranks, own)
        return hashlib.sha256(b"".join(of_ranks)).hexdigest()


def fail(step: int) -> None:
    rank = dist.get_rank()
    if step == FAILING_STEPS[1] and rank == 0:
        raise ValueError("a bad batch")
    if step != FAILING_STEPS[1] and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, failures = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group()
    training = Training()
    complete = sorted((path.parent for path in folder.glob("*/metadata.json")), key=lambda path: int(path.name[4:]))
    if complete:
        training.restore(complete[-1])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    begin = training.step
    training.run(folder, FAILING_STEPS[attempt] if attempt < failures else -1)
    digest = training.digest()
    if dist.get_rank() == 0:
        print(f"BITS {digest} attempt {attempt} from step {begin} to {training.step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
