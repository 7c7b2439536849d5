"""Random numbers: generators, the functions that draw, and their in-place forms on Tensor.

A generator is two integers: a seed, and an offset that grows with every call. A call hands both to its kernel, where
element i draws the Philox counter (i, offset): results are the same on every device, for every layout and schedule.
Nothing waits for a device, and the state of a generator is always known on the host.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import _hosting
from ._checks import only_tensors, whole_number
from ._making import blank, finished, kept
from .factories import empty_like
from .runtime import dtypes
from .runtime.device import Device
from .runtime.device import device as to_device
from .runtime.dispatch import call, call_into
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, UnsupportedDType
from .runtime.records import registry
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = [
    "Generator", "bernoulli", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial",
    "normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "seed",
    "set_rng_state",
]  # fmt: skip

_MASK = (1 << 64) - 1
_LEVELS = {"float16": 2.0**11, "bfloat16": 2.0**8, "float64": 2.0**53}
_FIRST_SEED = 67280421310721  # PyTorch's: the same numbers in every run unless a program asks for others


class Generator:
    """A stream of random numbers: `seed`, and an `offset` that every call advances.

    It serves every device: `device` is accepted for PyTorch's sake and only remembered.
    """

    __slots__ = ("_seed", "device", "offset")

    def __init__(self, device: Any = "cpu"):
        self.device: Device = to_device(device)
        self._seed = _FIRST_SEED
        self.offset = 0

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed`, an integer of 64 bits (negative ones wrap). Returns the generator."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentError(f"manual_seed: takes an int, not {type(seed).__name__}")
        number = seed.__index__()
        if not -(1 << 63) <= number <= _MASK:
            raise ArgumentError(f"manual_seed: {number} does not fit 64 bits")
        self._seed = number & _MASK
        self.offset = 0
        return self

    def seed(self) -> int:
        """Start a stream that the operating system's randomness chooses; returns its seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def take(self, draws: int) -> tuple[int, int]:
        """The seed, and the offset of a call that makes `draws` draws an element; the offset moves on."""
        offset = self.offset
        self.offset = (offset + draws) & _MASK
        return self._seed, offset

    def get_state(self) -> Tensor:
        """Seed and offset as 16 bytes, little-endian, in a uint8 tensor."""
        state = np.frombuffer(struct.pack("<QQ", self._seed, self.offset), np.uint8)
        return _hosting.from_host(state, dtypes.uint8, to_device("cpu"))

    def set_state(self, state: Tensor) -> None:
        """Continue where `get_state` was called."""
        data = _hosting.host_array(state).astype(np.uint8).tobytes()
        if len(data) != 16:
            raise ArgumentError(f"set_state: a state has 16 bytes, this one {len(data)}")
        self._seed, self.offset = struct.unpack("<QQ", data)

    def clone_state(self) -> Generator:
        """A generator that goes on as this one would."""
        made = Generator(self.device)
        made._seed, made.offset = self._seed, self.offset
        return made

    def __getstate__(self) -> tuple[str, int, int]:
        return str(self.device), self._seed, self.offset

    def __setstate__(self, state: tuple[str, int, int]) -> None:
        self.device, self._seed, self.offset = to_device(state[0]), state[1], state[2]

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self.offset})"


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Start the default generator's stream of `seed`."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Start the default generator at a seed of the operating system's choice; returns it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state (see `Generator.get_state`)."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue from a state of the default generator."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """What is drawn inside does not move the default generator."""
    before = default_generator._seed, default_generator.offset
    try:
        yield
    finally:
        if enabled:
            default_generator._seed, default_generator.offset = before


# Drawing --------------------------------------------------------------------------------------------------------------


def _take(record: Any, generator: Generator | None) -> tuple[int, int]:
    if generator is not None and not isinstance(generator, Generator):
        raise ArgumentError(f"{record.name}: generator must be a weftgrad.Generator, not {type(generator).__name__}")
    return (generator or default_generator).take(int(record.detail["draws"]))


def _fill(name: str, made: Tensor, numbers: tuple[Any, ...], generator: Generator | None, in_place: bool) -> Tensor:
    record = registry[name]
    drawn = _take(record, generator)
    if made.meta.numel:
        before = made.storage.version
        call_into(record, (made, *numbers, *drawn), (), (made,), in_place=in_place)
        if not in_place:
            made.storage.version = before
    return made


def draw(name: str, operands: Sequence[Any], generator: Generator | None = None) -> Tensor:
    """The result of the random op `name` for `operands`, with seed and offset taken from `generator`."""
    record = registry[name]
    return call(record, (*operands, *_take(record, generator)))


def _levels(dtype: DType) -> float:
    return _LEVELS.get(dtype.name, 2.0**24)


def _floating(made: Tensor, where: str) -> Tensor:
    if made.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{where}: takes a floating dtype, not {made.meta.dtype.name}")
    return made


def rand(
    *size: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """Numbers in [0, 1), evenly spread, from 24 bits each (float64: 53)."""
    made = _floating(blank("rand", size, named, dtype, device, out), "rand")
    _fill("uniform_fill", made, (0.0, 1.0, _levels(made.meta.dtype)), generator, out is not None)
    return finished(made, "rand", requires_grad, None, layout, pin_memory)


def randn(
    *size: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers of mean 0 and variance 1."""
    made = _floating(blank("randn", size, named, dtype, device, out), "randn")
    _fill("normal_fill", made, (0.0, 1.0), generator, out is not None)
    return finished(made, "randn", requires_grad, None, layout, pin_memory)


def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`rand` in the shape of `input`, with its dtype and device unless given."""
    only_tensors("rand_like", input)
    made = _floating(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), "rand_like")
    _fill("uniform_fill", made, (0.0, 1.0, _levels(made.meta.dtype)), generator, False)
    return finished(made, "rand_like", requires_grad, None, layout, pin_memory)


def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`randn` in the shape of `input`, with its dtype and device unless given."""
    only_tensors("randn_like", input)
    made = _floating(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), "randn_like")
    _fill("normal_fill", made, (0.0, 1.0), generator, False)
    return finished(made, "randn_like", requires_grad, None, layout, pin_memory)


def _span(low: int, high: int, where: str) -> tuple[int, int]:
    if high <= low:
        raise ArgumentError(f"{where}: draws from [low, high), and low {low} is not below high {high}")
    if high - low > 1 << 63 or not low >= -(1 << 63):
        raise ArgumentError(f"{where}: [{low}, {high}) does not fit 64 bits")
    return low, min(high - low, (1 << 63) - 1)


def randint(
    *args: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """Integers in [low, high): `randint(high, size)` or `randint(low, high, size)`; int64 unless `dtype` is given."""
    from_low = len(args) == 3 or "low" in named or len(args) + ("high" in named) + ("size" in named) == 3
    names = ("low", "high", "size") if from_low else ("high", "size")
    left = [name for name in names if name not in named]
    given = dict(zip(left, args, strict=False)) | named
    if len(args) > len(left) or "size" not in given or "high" not in given:
        raise ArgumentError("randint: takes randint(high, size) or randint(low, high, size)")
    for name in given:
        if name not in ("low", "high", "size"):
            raise ArgumentError(f"randint() got an unexpected keyword argument {name!r}")
    numbers = _span(int(given.get("low", 0)), int(given["high"]), "randint")
    wanted = dtypes.int64 if dtype is None and out is None else dtype
    made = blank("randint", (tuple(given["size"]),), {}, wanted, device, out)
    _fill("integer_fill", made, numbers, generator, out is not None)
    return finished(made, "randint", requires_grad, None, layout, pin_memory)


def randint_like(
    input: Tensor, *bounds: int, generator: Generator | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None, **named: int,
) -> Tensor:  # fmt: skip
    """Integers in [0, high) or [low, high), in the shape and dtype of `input`."""
    only_tensors("randint_like", input)
    left = [name for name in ("low", "high") if name not in named][-max(len(bounds), 1) :]
    given = dict(zip(left, bounds, strict=False)) | named
    if set(given) not in ({"high"}, {"low", "high"}) or len(given) != len(bounds) + len(named):
        raise ArgumentError("randint_like: takes randint_like(input, high) or randint_like(input, low, high)")
    made = empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    _fill("integer_fill", made, _span(given.get("low", 0), given["high"], "randint_like"), generator, False)
    return finished(made, "randint_like", requires_grad, None, layout, pin_memory)


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """1 with the probability that `input` (or `p`) gives, else 0, in the dtype of `input`."""
    if p is not None:
        found = _fill("bernoulli_fill", empty_like(input), (_probability(p, "bernoulli"),), generator, False)
    else:
        found = draw("bernoulli_draw", (_floating(input, "bernoulli"),), generator)
    return found if out is None else store(found, out, "bernoulli")


def _probability(p: float, where: str) -> float:
    if not 0 <= p <= 1:
        raise ArgumentError(f"{where}: a probability lies between 0 and 1, not {p}")
    return float(p)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Sequence[int] | None = None, *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers: `size` of them for numbers `mean` and `std`, else one for each element of a
    tensor."""
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentError(f"normal: std must not be negative, got {std}")
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return finished(draw("normal_around", (mean, std), generator), "normal", requires_grad, out)
    if size is None:
        raise ArgumentError("normal: numbers mean and std need size=")
    made = _floating(blank("normal", (tuple(size),), {}, dtype, device, out), "normal")
    _fill("normal_fill", made, (float(mean), float(std)), generator, out is not None)
    return finished(made, "normal", requires_grad, None, layout, pin_memory)


# On the host ----------------------------------------------------------------------------------------------------------


def philox(count: int, seed: int, offset: int) -> np.ndarray[Any, Any]:
    """Words 0 and 1 of the counters (0, offset) to (count - 1, offset) as 64-bit integers: what kernels draw."""
    index = np.arange(count, dtype=np.uint64)
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = index & low, index >> high
    c, d = np.full(count, offset & 0xFFFFFFFF, np.uint64), np.full(count, offset >> 32, np.uint64)
    k, l = seed & 0xFFFFFFFF, seed >> 32  # noqa: E741
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, c = (q >> high) ^ b ^ np.uint64(k), (p >> high) ^ d ^ np.uint64(l)
        b, d = q & low, p & low
        k, l = (k + 0x9E3779B9) & 0xFFFFFFFF, (l + 0xBB67AE85) & 0xFFFFFFFF  # noqa: E741
    return a << high | b


def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The integers 0 to n - 1 in random order: that of 64 random bits each, which are sorted on the host."""
    n = whole_number(n, "randperm", "n")
    order = np.argsort(philox(n, *(generator or default_generator).take(1)))  # which do not meet
    made = _hosting.from_host(order, *kept(dtype, device, out, dtypes.int64))
    return finished(made, "randperm", requires_grad, out, layout, pin_memory)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Indices drawn with probabilities in proportion to `input`, a row or rows of weights that are not negative.
    Without replacement those of weight 0 come last.

    Drawn on the host: with replacement by inverting the cumulative sums, without it by the largest of log(weight) plus
    Gumbel noise (Efraimidis & Spirakis, 2006).
    """
    weights = _hosting.host_array(input.detach()).astype(np.float64)  # type: ignore[attr-defined]
    rows = np.atleast_2d(weights)
    if (rows < 0).any() or not np.isfinite(rows).all() or not (rows.sum(-1) > 0).all():
        raise ArgumentError("multinomial: weights must be finite, not negative, and not all 0")
    if not replacement and num_samples > rows.shape[1]:
        raise ArgumentError(f"multinomial: {num_samples} samples without replacement of {rows.shape[1]} weights")
    shape = (rows.shape[0], num_samples if replacement else rows.shape[1])
    words = philox(shape[0] * shape[1], *(generator or default_generator).take(1)).reshape(shape)
    u = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    if replacement:
        sums = np.cumsum(rows, -1)
        found = np.stack([np.searchsorted(s, v * s[-1], side="right") for s, v in zip(sums, u, strict=True)])
    else:
        with np.errstate(divide="ignore"):
            found = np.argsort(-(np.log(rows) - np.log(-np.log(u))), -1, kind="stable")[:, :num_samples]
    result = found if weights.ndim == 2 else found[0]
    made = _hosting.from_host(result.astype(np.int64), dtypes.int64, input.meta.device)
    return made if out is None else store(made, out, "multinomial")


# In place -------------------------------------------------------------------------------------------------------------


class _Methods:
    """Collected here and copied to `Tensor`; `self` is a Tensor throughout."""

    def uniform_(
        self: Any, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **named: float
    ) -> Any:
        """Fill with numbers of [from, to)."""
        low, high = float(named.pop("from", from_)), float(to)
        if named:
            raise ArgumentError(f"uniform_() got an unexpected keyword argument {next(iter(named))!r}")
        if high < low:
            raise ArgumentError(f"uniform_: from {low} is above to {high}")
        _floating(self, "uniform_")
        return _fill("uniform_fill", self, (low, high, _levels(self.meta.dtype)), generator, True)

    def normal_(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Fill with normally distributed numbers."""
        if std < 0:
            raise ArgumentError(f"normal_: std must not be negative, got {std}")
        return _fill("normal_fill", _floating(self, "normal_"), (float(mean), float(std)), generator, True)

    def bernoulli_(self: Any, p: float = 0.5, *, generator: Generator | None = None) -> Any:
        """Fill with 1 with probability p, else 0; p may be a tensor of probabilities."""
        if isinstance(p, Tensor):
            return self.copy_(bernoulli(p.expand(self.meta.shape), generator=generator))  # type: ignore[attr-defined]
        return _fill("bernoulli_fill", self, (_probability(p, "bernoulli_"),), generator, True)

    def exponential_(self: Any, lambd: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Fill with exponentially distributed numbers of mean 1 / lambd."""
        if not lambd > 0:
            raise ArgumentError(f"exponential_: lambd must be positive, got {lambd}")
        return _fill("exponential_fill", _floating(self, "exponential_"), (float(lambd),), generator, True)

    def random_(self: Any, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Any:
        """Fill with integers of [from, to); without `to`, of all that the dtype holds from 0 on (`random_(to)` too)."""
        dtype = self.meta.dtype
        low, high = (0, from_) if to is None and from_ else (from_, to)
        if not high:
            bits = {"f": {"float64": 53, "float16": 11, "bfloat16": 8}.get(dtype.name, 24), "b": 1, "u": 8}
            high = (1 << bits.get(dtype.kind, 8 * dtype.itemsize - 1)) + (dtype.kind == "f")
        return _fill("integer_fill", self, _span(low, high, "random_"), generator, True)


def install() -> None:
    """Put the in-place forms on `Tensor`."""
    for name, value in vars(_Methods).items():
        if not name.startswith("__"):
            setattr(Tensor, name, value)
