"""The core suite: what an eager op costs the host, and how the main kernels stand beside torch and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import weftgrad as wg

__all__ = ["Case", "device_cases", "first_result", "host_cases", "torch_or_none"]


def torch_or_none() -> Any:
    """The torch module if it is installed, set to this machine's cores."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(os.cpu_count() or 1)
    return torch


@dataclass(frozen=True, slots=True)
class Case:
    """One row: contenders by name, each a function doing its work n times and waiting, and what is right.

    result: our result as an array; expected: float64. bytes and flops a call, for the derived columns. target: the
    least ratio peer/ours by minima that the project set itself, by peer.
    """

    group: str
    name: str
    contenders: dict[str, Callable[[int], None]]
    result: Callable[[], np.ndarray[Any, Any]]
    expected: Callable[[], np.ndarray[Any, Any]]
    bytes: int = 0
    flops: int = 0
    target: dict[str, float] | None = None
    tolerance: float = 1e-4


def device_cases(device: str) -> Iterator[Case]:
    """Kernels against peers."""
    torch = torch_or_none()
    place = wg.device(device)
    rng = np.random.default_rng(0)

    def ours(function: Callable[[], Any]) -> Callable[[int], None]:
        def run(n: int) -> None:
            for _ in range(n):
                function()
            place.driver.synchronize()

        return run

    def peer(function: Callable[[], Any]) -> Callable[[int], None]:
        def run(n: int) -> None:
            for _ in range(n):
                function()

        return run

    def case(
        group: str, name: str, arrays: list[np.ndarray[Any, Any]], ours_: Any, torch_: Any, numpy_: Any, **facts: Any
    ) -> Case:
        mine = [wg.tensor(a, device=place) for a in arrays]
        contenders = {"ours": ours(lambda: ours_(*mine))}
        if torch is not None and torch_ is not None:
            theirs = [torch.from_numpy(a) for a in arrays]
            contenders["torch"] = peer(lambda: torch_(torch, *theirs))
        if numpy_ is not None:
            contenders["numpy"] = peer(lambda: numpy_(*arrays))
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        reference = facts.pop("reference", numpy_)
        return Case(
            group, name, contenders, lambda: ours_(*mine).cpu().numpy(), lambda: reference(*wide), **facts
        )  # fmt: skip

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape, dtype=np.float32)

    million = 1 << 20
    for label, n in (("64K", 1 << 16), ("1M", million), ("4M", 4 * million), ("16M", 16 * million)):
        goal = {"torch": 0.9} if n >= 4 * million else None
        a, b = normal(n), normal(n)
        yield case("elementwise", f"add {label}", [a, b], lambda x, y: x + y, lambda _, x, y: x + y, np.add,
                   bytes=12 * n, target=goal)  # fmt: skip
        yield case("elementwise", f"exp {label}", [a], lambda x: x.exp(), lambda t, x: t.exp(x), np.exp,
                   bytes=8 * n, target=goal)  # fmt: skip
        yield case("elementwise", f"gelu {label}", [a], lambda x: wg.nn.functional.gelu(x),
                   lambda t, x: t.nn.functional.gelu(x), None, bytes=8 * n, target=goal, reference=_gelu)  # fmt: skip
    m, row, column = normal(4096, 1024), normal(1024), normal(4096, 1)
    yield case("elementwise", "4096x1024 + row", [m, row], lambda x, y: x + y, lambda _, x, y: x + y, np.add,
               bytes=8 * m.size, target={"torch": 0.9})  # fmt: skip
    yield case("elementwise", "4096x1024 + column", [m, column], lambda x, y: x + y, lambda _, x, y: x + y, np.add,
               bytes=8 * m.size, target={"torch": 0.9})  # fmt: skip
    small = normal(1024)

    def chain(x: Any) -> Any:
        y = x
        for _ in range(200):
            y = y + x
        return y

    yield case("latency", "200 adds of 1K", [small], chain, lambda _, x: chain(x), chain, target={"torch": 0.3})
    big = normal(16 * million)
    yield case("reduction", "sum 16M", [big], lambda x: x.sum(), lambda t, x: t.sum(x), np.sum, bytes=4 * big.size,
               target={"torch": 0.9}, tolerance=1e-3)  # fmt: skip
    for axis, label in ((1, "row"), (0, "column")):
        yield case("reduction", f"{label} sums 4096x1024", [m], lambda x, d=axis: x.sum(d),
                   lambda t, x, d=axis: t.sum(x, d),
                   lambda x, d=axis: x.sum(d), bytes=4 * m.size, target={"torch": 0.9})  # fmt: skip
    yield case("row", "softmax 4096x1024", [m], lambda x: wg.softmax(x, 1), lambda t, x: t.softmax(x, 1), None,
               bytes=8 * m.size, target={"torch": 1.0}, reference=_softmax)  # fmt: skip
    g, c = normal(1024), normal(1024)
    yield case("row", "layer_norm 4096x1024", [m, g, c], lambda x, w, b: wg.nn.functional.layer_norm(x, (1024,), w, b),
               lambda t, x, w, b: t.nn.functional.layer_norm(x, (1024,), w, b), None, bytes=8 * m.size,
               target={"torch": 1.0}, reference=_layer_norm)  # fmt: skip
    for n in (512, 777, 1000, 1024, 2048):
        for ta, tb in ((0, 0), (0, 1), (1, 0), (1, 1)) if n in (777, 1024) else ((0, 0),):
            yield case("matmul", f"{'NT'[ta]}{'NT'[tb]} {n}", [normal(n, n), normal(n, n)], *_products(ta, tb),
                       flops=2 * n**3, target={"torch": 0.85, "numpy": 0.9})  # fmt: skip


def _products(ta: int, tb: int) -> tuple[Any, Any, Any]:
    def ours(x: Any, y: Any) -> Any:
        return (x.t() if ta else x) @ (y.t() if tb else y)

    def numpy_(x: Any, y: Any) -> Any:
        return (x.T if ta else x) @ (y.T if tb else y)

    return ours, lambda _, x, y: ours(x, y), numpy_


def _gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / 2**0.5)) if x.size <= 1 << 16 else np.empty(0)


def _softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b


def host_cases(device: str) -> Iterator[tuple[str, Callable[[], object], int, float, float]]:
    """Eager ops over 100 alternating small shapes, views with offsets among them: (name, run, calls, targets in us)."""
    place = wg.device(device)
    rng = np.random.default_rng(0)
    shapes = [(int(rng.integers(1, 24)), int(rng.integers(1, 24))) for _ in range(100)]

    def tensors(needs: bool) -> list[tuple[Any, Any, Any, Any]]:
        found = []
        for i, (r, c) in enumerate(shapes):
            whole = wg.tensor(rng.standard_normal((r + 1, c), dtype=np.float32), device=place, requires_grad=needs)
            x = (
                whole[1:]
                if i % 2
                else wg.tensor(rng.standard_normal((r, c), dtype=np.float32), device=place, requires_grad=needs)
            )
            y = wg.tensor(rng.standard_normal((r, c), dtype=np.float32), device=place)
            row = wg.tensor(rng.standard_normal((c,), dtype=np.float32), device=place)
            right = wg.tensor(rng.standard_normal((c, 8), dtype=np.float32), device=place)
            found.append((x, y, row, right))
        return found

    for needs in (False, True):
        sets = tensors(needs)
        suffix = ", recorded" if needs else ""
        least, middle = (12.0, 18.0) if needs else (8.0, 12.0)
        for name, function in (
            ("add", lambda x, y, row, right: x + y), ("add number", lambda x, y, row, right: x + 1.5),
            ("add row", lambda x, y, row, right: x + row), ("exp", lambda x, y, row, right: x.exp()),
            ("softmax", lambda x, y, row, right: wg.softmax(x, 1)), ("mm", lambda x, y, row, right: wg.mm(x, right)),
        ):  # fmt: skip
            yield name + suffix, _each(function, sets), len(sets), least, middle
    yield "view", _each(lambda x, y, row, right: y[0], sets), len(sets), 3.0, 4.5
    leaf = wg.ones(16, 16, device=place, requires_grad=True)
    other = wg.ones(16, 16, device=place)

    def step() -> None:
        for _ in range(20):
            (leaf * other).sum().backward()

    yield "mul + sum + backward", step, 20, 60.0, 90.0


def _each(function: Callable[..., Any], sets: list[tuple[Any, ...]]) -> Callable[[], object]:
    def run() -> None:
        for each in sets:
            function(*each)

    return run


def first_result() -> float:
    """Seconds from starting Python to a first result, with warm caches: the least of three processes."""
    code = "import weftgrad as wg; print((wg.ones(3) + 1).sum().item())"
    best = float("inf")
    for _ in range(4):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        best = min(best, time.perf_counter() - begin)
    return best
