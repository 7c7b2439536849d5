"""Train one network by several processes at once, without locks.

    python examples/hogwild.py
    python examples/hogwild.py --processes 4

The parameters lie in shared memory. Each process reads them, computes a gradient on a batch of its own, and updates
whatever the other processes have written meanwhile (Hogwild!: Recht, Ré, Wright and Niu 2011; section 5.4 of the
PyTorch paper). Some gradients are those of older parameters and some updates are lost, but the network learns.
"""

import argparse
import time

import weftgrad as torch
import weftgrad.multiprocessing as mp
from weftgrad import nn, optim
from weftgrad.demo import digits


def create_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(),
        nn.Linear(64, digits.CLASSES),
    )  # fmt: skip


def train(rank, model, images, labels, epochs, start):
    """Train the shared `model` for `epochs` passes over the data, in the order that this process draws.

    Args:
        rank: Number of this process, which seeds its order.
        model: The network. Its parameters are in shared memory; gradients and the optimizer's state are this process's.
        images: Images `(N, 1, 8, 8)`, float32, in shared memory.
        labels: Classes `(N,)`, int64, in shared memory.
        epochs: Passes over the data.
        start: Barrier at which all processes wait until the last one is ready.
    """
    torch.manual_seed(1 + rank)
    torch.set_num_threads(1)  # the other cores belong to the other processes
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    nn.functional.cross_entropy(model(images[:32]), labels[:32]).backward()  # loads the kernels
    start.wait()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


def train_in_processes(model, images, labels, epochs, count):
    """Train `model` by `count` processes, which divide the epochs, and return the seconds from the barrier on."""
    model.share_memory()
    start = mp.Barrier(count + 1, timeout=120)
    shares = [epochs // count + (rank < epochs % count) for rank in range(count)]
    processes = [
        mp.Process(target=train, args=(rank, model, images, labels, share, start), daemon=True)
        for rank, share in enumerate(shares)
    ]
    for process in processes:
        process.start()
    start.wait()
    begin = time.perf_counter()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes of the processes: {[process.exitcode for process in processes]}")
    return time.perf_counter() - begin


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2, help="2 by default")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the data, of all processes together")
    options = parser.parse_args()

    images, labels, test_images, test_labels = (torch.tensor(array) for array in digits.load())
    print("processes  seconds  test accuracy  parameters moved by")
    for count in (1, options.processes):
        model = create_model()
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        seconds = train_in_processes(model, images, labels, options.epochs, count)
        # This process has run no optimizer: it sees what the others wrote.
        moved = (nn.utils.parameters_to_vector(model.parameters()).detach() - before).norm().item()
        print(f"{count:9d} {seconds:8.2f} {accuracy(model, test_images, test_labels):14.1%} {moved:20.2f}")


if __name__ == "__main__":
    main()
