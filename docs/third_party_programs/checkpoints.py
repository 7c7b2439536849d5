"""Write a checkpoint by one library, read it by the other, and train on: the second table of docs/third-party.md.

    python checkpoints.py write LIBRARY FOLDER
    python checkpoints.py read LIBRARY FOLDER

LIBRARY is `torch` or `weftgrad`. `write` trains a small network, writes it to files of each format that the library
writes, and describes every value in `expected.json`: tensors by dtype, shape, strides and a digest of their bits. Then
it trains for three more steps. `read` reads the files, describes what it reads, and trains the same three steps from
each. It prints one line of JSON: for each file how many values agree, which do not, and how much the weights differ.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 3
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


def network(torch: Any) -> Any:
    """Return a network with kinds of layers that have weights and buffers of different ranks and dtypes."""
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Without a bias: its gradient before a batch norm is rounding noise, which AdamW scales to full steps.
            convolution = nn.Conv2d(3, 6, 3, padding=1, bias=False)
            self.features = nn.Sequential(convolution, nn.BatchNorm2d(6), nn.ReLU())
            self.lstm = nn.LSTM(12, 5, batch_first=True)
            self.output = nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            rows = self.features(x).flatten(2).transpose(1, 2).reshape(len(x), -1, 12)
            return self.output(self.lstm(rows)[0][:, -1])

    model = Network()
    generator = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in model.parameters():
            values = 0.3 * generator.standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return model.to(memory_format=torch.channels_last)


def optimizer_of(torch: Any, model: Any) -> Any:
    """Return an optimizer with two groups, whose state has tensors and numbers."""
    groups = [{"params": list(model.features.parameters()), "lr": 0.02}, {"params": list(model.lstm.parameters())}]
    return torch.optim.AdamW([*groups, {"params": list(model.output.parameters())}], lr=0.01, amsgrad=True)


def train(torch: Any, model: Any, optimizer: Any, seed: int) -> None:
    """Train for a few steps on batches from NumPy's generator."""
    generator = np.random.default_rng(seed)
    for _ in range(STEPS):
        images = torch.from_numpy(generator.standard_normal((4, 3, 4, 4)).astype(np.float32))
        optimizer.zero_grad()
        (model(images) - images.mean((2, 3))[:, :2]).square().mean().backward()
        optimizer.step()


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Return parameters and buffers as arrays."""
    return {name: value.detach().numpy().astype(np.float64) for name, value in model.state_dict().items()}


def assorted_values(torch: Any) -> dict[str, Any]:
    """Return values of all kinds that a checkpoint may have."""
    base = torch.arange(24).reshape(2, 3, 2, 2).float()
    return {
        "dtypes": {name: (torch.arange(6) * 3 - 4).to(getattr(torch, name)) for name in DTYPES},
        "views": [base, base[1], base.transpose(0, 1), base[:, :, 1], base[:1].expand(4, 3, 2, 2)],
        "channels last": base.to(memory_format=torch.channels_last),
        "empty": torch.empty(0, 3), "number": torch.tensor(2.5), "parameter": torch.nn.Parameter(base.clone()),
        "frozen": torch.nn.Parameter(base[0].clone(), requires_grad=False),
        "extremes": torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0, 1e-45]),
        "values": (1, -(2**70), 0.1, True, None, "größer", b"\x00\xff", [3, [4]], torch.Size([2, 3])),
        "ordered": OrderedDict([("b", 1), ("a", 2)]), "set": {1, 2}, 7: "a number as key",
        "dtype": torch.bfloat16, "device": torch.device("cpu"),
    }  # fmt: skip


def described(torch: Any, value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Return a path and a description for each value in a tree of containers."""
    if isinstance(value, torch.Tensor):
        array = value.detach().contiguous()
        array = (array.view(torch.int16) if value.dtype == torch.bfloat16 else array).numpy()
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        dtype = str(value.dtype).partition(".")[2]
        kind = type(value).__name__
        yield path, f"{kind} {dtype} {tuple(value.shape)} {tuple(value.stride())} {value.requires_grad} {digest}"
    elif isinstance(value, dict):
        yield path, f"{type(value).__name__} {list(value)}"
        for key, element in value.items():
            yield from described(torch, element, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        yield path, type(value).__name__
        for number, element in enumerate(value):
            yield from described(torch, element, f"{path}/{number}")
    elif isinstance(value, torch.dtype):
        yield path, str(value).partition(".")[2]
    else:
        yield path, repr(value)


def memory_is_shared(views: list[Any]) -> bool:
    """Return True if all tensors see a write to the first one."""
    views[0].fill_(-1)
    return all((view == -1).all().item() for view in views)


def write(library: str, folder: Path) -> None:
    """Train, write files of all formats, and train on."""
    torch = importlib.import_module(library)
    folder.mkdir(parents=True, exist_ok=True)
    model = network(torch)
    optimizer = optimizer_of(torch, model)
    train(torch, model, optimizer, 0)
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "assorted": assorted_values(torch)}
    if library == "torch":
        from safetensors.torch import save_file

        torch.save(checkpoint, folder / "zip.pt")
        torch.save(checkpoint, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    else:
        from weftgrad.serialization import save_safetensors as save_file

        torch.save(checkpoint, folder / "zip.pt", format="torch")
    # A safetensors file has row-major tensors, each with memory of its own.
    tensors = model.state_dict() | {f"dtype.{name}": value for name, value in checkpoint["assorted"]["dtypes"].items()}
    tensors = {name: value.detach().contiguous() for name, value in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    descriptions = {"pt": dict(described(torch, checkpoint)), "safetensors": dict(described(torch, tensors))}
    (folder / "expected.json").write_text(json.dumps(descriptions), encoding="utf-8")
    train(torch, model, optimizer, 1)
    np.savez(folder / "trained.npz", **weights_of(model))


def read(library: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Read all files of a folder, compare values with their descriptions, and train on from each file.

    Returns:
        For each file the number of values, the paths of those that differ, and the largest difference of a weight after
        training, relative to the largest weight of its array; None for safetensors, without the optimizer's state.
    """
    torch = importlib.import_module(library)
    descriptions = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    trained = np.load(folder / "trained.npz")
    results: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.pt")):
        for options in ({}, {"mmap": True}) if path.stem == "zip" else ({},):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True, **options)
            actual, expected = dict(described(torch, checkpoint)), descriptions["pt"]
            wrong = sorted(key for key in actual.keys() | expected.keys() if actual.get(key) != expected.get(key))
            if not memory_is_shared(checkpoint["assorted"]["views"]):
                wrong.append("/assorted/views: memory is not shared")
            model = network(torch)
            optimizer = optimizer_of(torch, model)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            train(torch, model, optimizer, 1)
            weights = weights_of(model)
            difference = max(
                float(np.abs(weights[name] - trained[name]).max() / max(np.abs(trained[name]).max(), 1e-6))
                for name in trained.files
            )
            name = f"{path.name}{', mmap=True' if options else ''}"
            results[name] = {"values": len(expected), "wrong": wrong, "difference": difference}
    if library == "torch":
        from safetensors.torch import load_file
    else:
        from weftgrad.serialization import load_safetensors as load_file
    path = folder / "model.safetensors"
    actual, expected = dict(described(torch, dict(sorted(load_file(path).items())))), descriptions["safetensors"]
    actual[""] = expected[""]  # the order of names is the file's
    wrong = sorted(key for key in actual.keys() | expected.keys() if actual.get(key) != expected.get(key))
    results[path.name] = {"values": len(expected), "wrong": wrong, "difference": None}
    return results


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], Path(sys.argv[3]))
    else:
        print(json.dumps(read(sys.argv[2], Path(sys.argv[3]))))
