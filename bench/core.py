"""The core suite for CPUs, and the host cost of an eager op on any device."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar, Unpack

import numpy as np

from ..runtime.dtypes import Array
from . import references
from .cases import Case, CaseOptions, Pairs, Work, rotated
from .library_types import Tensor
from .sites import Site
from .training import chain

if TYPE_CHECKING:
    from .library_types import Operation, Reference

__all__ = ["HostCase", "cases", "first_result", "host_cases"]

Matrix = TypeVar("Matrix", Array, Tensor)
_SAMPLE = 1 << 14  # elements of a vector that are checked where the reference is slow
_MAX_PROCESSES = 4  # processes whose first result is timed


def cases() -> Iterator[Case]:
    """Yield float32 rows for torch and NumPy as peers, in sizes from within the caches to main memory."""
    mebi = 1 << 20
    for label, n in (("64K", 1 << 16), ("1M", mebi), ("4M", 4 * mebi), ("16M", 16 * mebi)):
        goal = {"torch": 0.9} if n >= 4 * mebi else None
        pair, single = _normal_arrays((n,), (n,)), _normal_arrays((n,))
        yield _case("elementwise", f"add {label}", pair, _add, np.add, bytes=12 * n, target=goal)
        yield _case("elementwise", f"exp {label}", single, lambda f, x: f.exp(x), np.exp, bytes=8 * n, target=goal)
        yield _case("elementwise", f"gelu {label}", single, lambda f, x: f.nn.functional.gelu(x), references.gelu,
                    numpy=False, sample=_SAMPLE, bytes=8 * n, target=goal)  # fmt: skip
    matrix = _normal_arrays((4096, 1024))
    size = 4096 * 1024
    for name, shape in (("row", (1024,)), ("column", (4096, 1))):
        yield _case("elementwise", f"4096x1024 + {name}", _normal_arrays((4096, 1024), shape), _add, np.add,
                    bytes=8 * size, target={"torch": 0.9})  # fmt: skip
    yield _case("latency", "200 adds of 1K", _normal_arrays((1024,)), lambda _, x: chain(x), lambda x: 201 * x,
                target={"torch": 0.3})  # fmt: skip
    yield _case("reduction", "sum 16M", _normal_arrays((16 * mebi,)), lambda f, x: f.sum(x), np.sum, bytes=64 * mebi,
                target={"torch": 0.9}, tolerance=1e-3)  # fmt: skip
    for axis, label in ((1, "row"), (0, "column")):
        yield _case("reduction", f"{label} sums 4096x1024", matrix, lambda f, x, d=axis: f.sum(x, d),
                    lambda x, d=axis: x.sum(d), bytes=4 * size, target={"torch": 0.9})  # fmt: skip
    yield _case("row", "softmax 4096x1024", matrix, lambda f, x: f.softmax(x, 1), references.softmax, numpy=False,
                bytes=8 * size, target={"torch": 1.0})  # fmt: skip
    yield _case("row", "layer_norm 4096x1024", _normal_arrays((4096, 1024), (1024,), (1024,)),
                lambda f, x, w, b: f.nn.functional.layer_norm(x, (1024,), w, b), references.layer_norm, numpy=False,
                bytes=8 * size, target={"torch": 1.0})  # fmt: skip
    for n in (512, 777, 1000, 1024, 2048):
        for ta, tb in ((0, 0), (0, 1), (1, 0), (1, 1)) if n in (777, 1024) else ((0, 0),):
            yield _case("matmul", f"{'NT'[ta]}{'NT'[tb]} {n}", _normal_arrays((n, n), (n, n)),
                        lambda _, x, y, a=ta, b=tb: _matrix_product(x, y, a, b),
                        lambda x, y, a=ta, b=tb: _matrix_product(x, y, a, b), flops=2 * n**3, bytes=12 * n**2,
                        target={"torch": 0.85, "numpy": 0.9})  # fmt: skip


def _add(_: object, x: Tensor, y: Tensor) -> Tensor:
    return x + y


def _matrix_product(x: Matrix, y: Matrix, transpose_x: int, transpose_y: int) -> Matrix:
    return (x.T if transpose_x else x) @ (y.T if transpose_y else y)


def _normal_arrays(*shapes: tuple[int, ...]) -> Callable[[], list[Array]]:
    """Return a function that returns the same normally distributed float32 arrays at every call."""

    @cache
    def arrays() -> list[Array]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]

    return arrays


def _case(
    group: str, name: str, arrays: Callable[[], list[Array]], function: Operation, reference: Reference, *,
    numpy: bool = True, sample: int | None = None, target: dict[str, float] | None = None,
    **options: Unpack[CaseOptions],
) -> Case:  # fmt: skip
    """Return the row of a function of float32 arrays.

    Args:
        group: The row's group.
        name: The row's name.
        arrays: Returns the operands.
        function: The function, of a library and its tensors.
        reference: The same function of float64 arrays.
        numpy: Whether NumPy can be a peer.
        sample: Number of first elements to check; None: all.
        target: By peer, the ratio of times to reach.
        **options: Further arguments of `Case`.
    """

    def make(site: Site) -> Work | None:
        if site.arrays and not numpy:
            return None
        run = site.ready(function)
        operands, call = rotated(site, lambda: [site.tensor(a) for a in arrays()], run)

        def pairs() -> Pairs:
            arrays64 = [a.astype(np.float64)[:sample] for a in arrays()]
            result = run(*operands)
            return [(site.host(result[:sample] if sample else result), np.asarray(reference(*arrays64)))]

        return Work(call, pairs)

    return Case(group, name, make, target=target, **options)


@dataclass(frozen=True, slots=True)
class HostCase:
    """A row of host costs.

    Attributes:
        name: The row's name.
        make: Returns, for a site, a function that runs `calls` ops.
        calls: Number of ops.
        target: The minimum and the median that an op should take, in microseconds.
    """

    name: str
    make: Callable[[Site], Callable[[], object]]
    calls: int
    target: tuple[float, float]


def host_cases(gpu: bool) -> Iterator[HostCase]:
    """Yield eager ops over 100 alternating small shapes, half of them views with an offset."""
    for needs_grad in (False, True):
        target = (12.0, 18.0) if needs_grad else (12.0, 12.0) if gpu else (8.0, 12.0)
        for name, function in (
            ("add", lambda f, x, y, row, right: x + y), ("add number", lambda f, x, y, row, right: x + 1.5),
            ("add row", lambda f, x, y, row, right: x + row), ("exp", lambda f, x, y, row, right: x.exp()),
            ("softmax", lambda f, x, y, row, right: f.softmax(x, 1)),
            ("mm", lambda f, x, y, row, right: f.mm(x, right)),
        ):  # fmt: skip
            yield HostCase(name + ", recorded" * needs_grad, _host_call(function, needs_grad), 100, target)
    yield HostCase("view", _host_call(lambda f, x, y, row, right: y[0], True), 100, (3.0, 4.5))
    yield HostCase("mul + sum + backward", _backward, 20, (60.0, 90.0))


def _host_call(function: Callable[..., object], needs_grad: bool) -> Callable[[Site], Callable[[], object]]:
    """Return a `HostCase.make` that calls a function of a library and `(x, y, row, right)` on 100 operand sets."""

    def make(site: Site) -> Callable[[], object]:
        sets = _random_operands(site, needs_grad)
        library = site.library

        def run() -> None:
            for operands in sets:
                function(library, *operands)

        return run

    return make


def _random_operands(site: Site, needs_grad: bool) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return 100 sets of x and y `(r, c)`, row `(c,)` and right `(c, 8)`; every other x is a view with an offset."""
    rng = np.random.default_rng(0)
    operands = []
    for i in range(100):
        r, c = int(rng.integers(1, 24)), int(rng.integers(1, 24))
        x = (site.tensor(rng.standard_normal((r + 1, c), dtype=np.float32), grad=needs_grad)[1:] if i % 2 else
             site.tensor(rng.standard_normal((r, c), dtype=np.float32), grad=needs_grad))  # fmt: skip
        y, row, right = (
            site.tensor(rng.standard_normal(shape, dtype=np.float32)) for shape in ((r, c), (c,), (c, 8))
        )  # fmt: skip
        operands.append((x, y, row, right))
    return operands


def _backward(site: Site) -> Callable[[], object]:
    ones = np.ones((16, 16), np.float32)
    leaf, other = site.tensor(ones, grad=True), site.tensor(ones)

    def step() -> None:
        for _ in range(20):
            (leaf * other).sum().backward()

    return step


def first_result(device: str, seconds: float | None = None) -> float:
    """Return the seconds from starting Python to a first result, with warm caches: the minimum of four processes.

    Args:
        device: The device that computes the result.
        seconds: How long to measure. No process but the first starts if it would end later. None: no limit.
    """
    code = "import weftgrad as wg; print((wg.ones(3) + 1).sum().item())"
    times: list[float] = []
    while len(times) < _MAX_PROCESSES:
        if times and seconds is not None and sum(times) + min(times) > seconds:
            break
        begin = time.perf_counter()
        environment = {**os.environ, "WEFTGRAD_DEVICE": device}
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)
        times.append(time.perf_counter() - begin)
    return min(times)
