"""Load data with worker processes: a data set that computes its items, and a training loop that it feeds.

    python examples/data_loading.py

Each item is a sound of a half second, a tone in noise, and its spectrum is computed when the item is read. Workers do
this while the training loop computes, and hand batches over in shared memory. Workers import the module that
defines the data set, so a script needs `if __name__ == "__main__":`.
"""

import argparse
import time

import numpy as np

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.nn import functional as F
from weftgrad.utils.data import DataLoader, Dataset

NOTES = (220.0, 246.9, 261.6, 293.7, 329.6, 349.2, 392.0)  # Hz: A B C D E F G
RATE = 8000
SAMPLES = RATE // 2


class Tones(Dataset):
    """Noisy tones: item `i` is the spectrum of one, float32 of shape `(200,)`, and its note, 0 to 6."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)  # the same item whichever worker computes it
        note = int(rng.integers(len(NOTES)))
        t = np.arange(SAMPLES) / RATE
        sound = np.sin(2 * np.pi * NOTES[note] * t + rng.uniform(0, 2 * np.pi)) + rng.normal(0, 3, SAMPLES)
        spectrum = np.abs(np.fft.rfft(sound * np.hanning(SAMPLES)))[50:250] / 300
        return spectrum.astype(np.float32), note


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=8192)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2], help="worker counts (default: 0 1 2)")
    options = parser.parse_args()

    test_loader = DataLoader(Tones(512), batch_size=512)
    test_spectra, test_notes = next(iter(test_loader))
    for workers in options.workers:
        wg.manual_seed(0)
        train_set = wg.utils.data.Subset(Tones(512 + options.items), range(512, 512 + options.items))
        loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        net = nn.Sequential(nn.Linear(200, 128), nn.ReLU(), nn.Linear(128, len(NOTES)))
        optimizer = optim.Adam(net.parameters(), lr=2e-3)
        batches = iter(loader)
        batch = next(batches, None)  # starts the workers, which import the package
        begin = time.perf_counter()
        while batch is not None:
            spectra, notes = batch
            loss = F.cross_entropy(net(spectra), notes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch = next(batches, None)
        seconds = time.perf_counter() - begin
        with wg.no_grad():
            accuracy = (net(test_spectra).argmax(1) == test_notes).float().mean().item()
        print(f"{workers} workers: {options.items / seconds:8,.0f} items/s  "
              f"last loss {loss.item():.4f}  test accuracy {100 * accuracy:.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
