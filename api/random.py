"""Random numbers: generators, sampling functions, and their in-place forms on Tensor.

A generator is two integers: a seed, and an offset that grows with every call. A call passes both to its kernel, where
element i uses the Philox counter (i, offset) (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
Results are therefore the same on every device, for every layout and schedule. Nothing waits for a device, and the host
always knows the state of a generator.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, SupportsIndex, SupportsInt, overload

import numpy as np

from .arguments.out import copy_to_out
from .arguments.types import Layout, MemoryFormat, Sizes
from .creation.factories import empty_like
from .creation.options import allocate_output, finalize_output, resolve_dtype_and_device
from .indexing.bounds import check_interval
from .runtime import dtypes, host_data
from .runtime.device import Device, DeviceLike
from .runtime.device import device as to_device
from .runtime.dispatch import call, call_into
from .runtime.dtypes import Array, DType, DTypeLike
from .runtime.errors import ArgumentError, UnsupportedDType
from .runtime.records import OpRecord, registry
from .runtime.tensor import Tensor
from .tensor_methods.argument_checks import only_tensors, to_integer

__all__ = [
    "Generator", "bernoulli", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial",
    "normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "seed",
    "set_rng_state",
]  # fmt: skip

_UINT64_MAX = (1 << 64) - 1
_UNIFORM_LEVELS = {"float16": 2.0**11, "bfloat16": 2.0**8, "float64": 2.0**53}
_DEFAULT_SEED = 67280421310721  # PyTorch's default: the same numbers in every run unless a program seeds


class Generator:
    """A stream of random numbers: a seed, and an offset that every call advances.

    One generator works for every device; `device` is accepted for compatibility with PyTorch and only stored.

    Args:
        device: Device that the attribute `device` names.

    Example:
        >>> generator = wg.Generator().manual_seed(3)
        >>> x = wg.rand(2, generator=generator)
        >>> wg.equal(x, wg.rand(2, generator=generator.manual_seed(3)))
        True
    """

    __slots__ = ("_seed", "device", "offset")

    def __init__(self, device: DeviceLike | None = "cpu"):
        self.device: Device = to_device(device)
        self._seed = _DEFAULT_SEED
        self.offset = 0

    def manual_seed(self, seed: int) -> Generator:
        """Set the seed and reset the offset.

        Args:
            seed: 64-bit integer; negative ones wrap.

        Returns:
            This generator.

        Raises:
            ArgumentError: If `seed` is not an int, or does not fit 64 bits.

        Example:
            >>> wg.Generator().manual_seed(3).initial_seed()
            3
        """
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentError(f"manual_seed: takes an int, not {type(seed).__name__}")
        number = seed.__index__()
        if not -(1 << 63) <= number <= _UINT64_MAX:
            raise ArgumentError(f"manual_seed: {number} does not fit 64 bits")
        self._seed = number & _UINT64_MAX
        self.offset = 0
        return self

    def seed(self) -> int:
        """Seed from the operating system's randomness, and return the seed.

        Returns:
            Python int.
        """
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed.

        Returns:
            Python int.
        """
        return self._seed

    def take(self, draws: int) -> tuple[int, int]:
        """Return seed and offset for a call that draws `draws` times for each element, and advance the offset.

        Args:
            draws: Number of random values that the call draws for each element.

        Returns:
            Two ints.
        """
        offset = self.offset
        self.offset = (offset + draws) & _UINT64_MAX
        return self._seed, offset

    def get_state(self) -> Tensor:
        """Return seed and offset as a uint8 tensor of 16 bytes, little-endian.

        Returns:
            uint8 tensor of shape `(16,)` on `cpu`.

        Example:
            >>> wg.Generator().manual_seed(3).get_state()
            tensor([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=weftgrad.uint8)
        """
        state = np.frombuffer(struct.pack("<QQ", self._seed, self.offset), np.uint8)
        return host_data.from_host(state, dtypes.uint8, to_device("cpu"))

    def set_state(self, state: Tensor) -> None:
        """Restore a state that `get_state` returned.

        Args:
            state: State that `get_state` returned.

        Raises:
            ArgumentError: If `state` does not have 16 elements.

        Example:
            >>> generator = wg.Generator()
            >>> generator.set_state(wg.Generator().manual_seed(3).get_state())
            >>> generator
            Generator(seed=3, offset=0)
        """
        data = host_data.host_array(state).astype(np.uint8).tobytes()
        if len(data) != 16:
            raise ArgumentError(f"set_state: a state has 16 bytes, this one {len(data)}")
        self._seed, self.offset = struct.unpack("<QQ", data)

    def clone_state(self) -> Generator:
        """Return a new generator with the same state.

        Returns:
            `Generator`.

        Example:
            >>> wg.Generator().manual_seed(3).clone_state()
            Generator(seed=3, offset=0)
        """
        clone = Generator(self.device)
        clone._seed, clone.offset = self._seed, self.offset
        return clone

    def __getstate__(self) -> tuple[str, int, int]:
        return str(self.device), self._seed, self.offset

    def __setstate__(self, state: tuple[str, int, int]) -> None:
        self.device, self._seed, self.offset = to_device(state[0]), state[1], state[2]

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self.offset})"


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, and return it.

    Args:
        seed: Integer.

    Returns:
        The default generator.

    Example:
        >>> generator = wg.manual_seed(0)
        >>> wg.initial_seed()
        0
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system's randomness, and return the seed.

    Returns:
        Python int.

    Example:
        >>> with wg.random.fork_rng():
        ...     wg.seed() == wg.initial_seed()
        ...
        True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed of the default generator.

    Returns:
        Integer.

    Example:
        >>> generator = wg.manual_seed(7)
        >>> wg.initial_seed()
        7
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator; see `Generator.get_state`.

    Returns:
        uint8 tensor.

    Example:
        >>> state = wg.get_rng_state()
        >>> x = wg.rand(2)
        >>> wg.set_rng_state(state)
        >>> wg.equal(x, wg.rand(2))
        True
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state of the default generator.

    Args:
        new_state: State that `get_rng_state` returned.

    Raises:
        ArgumentError: If the state does not have 16 elements.

    Example:
        >>> state = wg.get_rng_state()
        >>> x = wg.rand(2)
        >>> wg.set_rng_state(state)
        >>> wg.equal(x, wg.rand(2))
        True
    """
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Sequence[DeviceLike] | None = None, enabled: bool = True) -> Iterator[None]:
    """Restore the state of the default generator when the `with` block ends.

    Args:
        devices: Ignored: all devices share one generator.
        enabled: False changes nothing.

    Returns:
        Context manager.

    Example:
        >>> with wg.random.fork_rng():
        ...     x = wg.rand(2)
        ...
        >>> wg.equal(x, wg.rand(2))
        True
    """
    saved_state = default_generator._seed, default_generator.offset
    try:
        yield
    finally:
        if enabled:
            default_generator._seed, default_generator.offset = saved_state


# Sampling -------------------------------------------------------------------------------------------------------------


def _advance(record: OpRecord, generator: Generator | None) -> tuple[int, int]:
    if generator is not None and not isinstance(generator, Generator):
        raise ArgumentError(f"{record.name}: generator must be a weftgrad.Generator, not {type(generator).__name__}")
    return (generator or default_generator).take(int(record.detail["draws"]))


def _fill_random(
    name: str, output: Tensor, numbers: tuple[float, ...], generator: Generator | None, in_place: bool
) -> Tensor:
    record = registry[name]
    seed_and_offset = _advance(record, generator)
    if output.meta.numel:
        version = output.storage.version
        call_into(record, (output, *numbers, *seed_and_offset), (), (output,), in_place=in_place)
        if not in_place:
            output.storage.version = version
    return output


def draw(name: str, operands: Sequence[Tensor | float], generator: Generator | None = None) -> Tensor:
    """Call the random op `name` with `operands` and the next seed and offset of `generator`."""
    record = registry[name]
    return call(record, (*operands, *_advance(record, generator)))


def _uniform_levels(dtype: DType) -> float:
    return _UNIFORM_LEVELS.get(dtype.name, 2.0**24)


def _require_floating(output: Tensor, where: str) -> Tensor:
    if output.meta.dtype.kind != "f":
        raise UnsupportedDType(f"{where}: takes a floating dtype, not {output.meta.dtype.name}")
    return output


@overload
def rand(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def rand(
    *, size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
def rand(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Sample uniformly from [0, 1), with a resolution of 24 bits (float64: 53). Pass the shape as for `empty`.

    Args:
        *size: The shape, as ints or as one sequence.
        generator: Source of random numbers; None: the default generator.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        **named: `size=`: the shape, as a sequence.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> x = wg.rand(2, 3)
        >>> bool(((x >= 0) & (x < 1)).all())
        True
    """
    output = _require_floating(allocate_output("rand", size, named, dtype, device, out), "rand")
    _fill_random("uniform_fill", output, (0.0, 1.0, _uniform_levels(output.meta.dtype)), generator, out is not None)
    return finalize_output(output, "rand", requires_grad, None, layout, pin_memory)


@overload
def randn(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def randn(
    *, size: Sizes, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
def randn(
    *size: Sizes, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Sample from the normal distribution with mean 0 and variance 1. Pass the shape as for `empty`.

    Args:
        *size: The shape, as ints or as one sequence.
        generator: Source of random numbers; None: the default generator.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        **named: `size=`: the shape, as a sequence.

    Returns:
        Tensor of shape `size`.

    Example:
        >>> wg.randn(2, 3).shape
        weftgrad.Size([2, 3])
    """
    output = _require_floating(allocate_output("randn", size, named, dtype, device, out), "randn")
    _fill_random("normal_fill", output, (0.0, 1.0), generator, out is not None)
    return finalize_output(output, "randn", requires_grad, None, layout, pin_memory)


def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Sample as `rand` does, with the shape of `input`, and its dtype and device by default.

    Args:
        input: Tensor whose shape the result has.
        generator: Source of random numbers; None: the default generator.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.rand_like(wg.zeros(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("rand_like", input)
    output = _require_floating(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), "rand_like")
    _fill_random("uniform_fill", output, (0.0, 1.0, _uniform_levels(output.meta.dtype)), generator, False)
    return finalize_output(output, "rand_like", requires_grad, None, layout, pin_memory)


def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Sample as `randn` does, with the shape of `input`, and its dtype and device by default.

    Args:
        input: Tensor whose shape the result has.
        generator: Source of random numbers; None: the default generator.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.randn_like(wg.zeros(2, 3)).shape
        weftgrad.Size([2, 3])
    """
    only_tensors("randn_like", input)
    output = _require_floating(empty_like(input, dtype=dtype, device=device, memory_format=memory_format), "randn_like")
    _fill_random("normal_fill", output, (0.0, 1.0), generator, False)
    return finalize_output(output, "randn_like", requires_grad, None, layout, pin_memory)


def _integer_range(low: int, high: int, where: str) -> tuple[int, int]:
    if high <= low:
        raise ArgumentError(f"{where}: draws from [low, high), and low {low} is not below high {high}")
    if high - low > 1 << 63 or not low >= -(1 << 63):
        raise ArgumentError(f"{where}: [{low}, {high}) does not fit 64 bits")
    return low, min(high - low, (1 << 63) - 1)


@overload
def randint(
    high: SupportsIndex, size: Sequence[SupportsIndex], *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
@overload
def randint(
    low: SupportsIndex, high: SupportsIndex, size: Sequence[SupportsIndex], *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor: ...  # fmt: skip
def randint(
    *args: Sizes, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, **named: Sizes,
) -> Tensor:  # fmt: skip
    """Sample integers from [low, high): `randint(high, size)` or `randint(low, high, size)`.

    Args:
        *args: `high` and `size`, or `low`, `high` and `size`.
        generator: Source of random numbers; None: the default generator.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: int64, or that of `out`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: the default device.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        **named: `low=`, `high=` and `size=`.

    Returns:
        Tensor of shape `size`.

    Raises:
        ArgumentError: If an argument is missing or unknown, or `low` is not below `high`.

    Example:
        >>> x = wg.randint(3, 6, (2, 4))
        >>> bool(((x >= 3) & (x < 6)).all())
        True
    """
    from_low = len(args) == 3 or "low" in named or len(args) + ("high" in named) + ("size" in named) == 3
    names = ("low", "high", "size") if from_low else ("high", "size")
    positional_names = [name for name in names if name not in named]
    arguments = dict(zip(positional_names, args, strict=False)) | named
    if len(args) > len(positional_names) or "size" not in arguments or "high" not in arguments:
        raise ArgumentError("randint: takes randint(high, size) or randint(low, high, size)")
    for name in arguments:
        if name not in ("low", "high", "size"):
            raise ArgumentError(f"randint() got an unexpected keyword argument {name!r}")
    low, high, size = arguments.get("low", 0), arguments["high"], arguments["size"]
    number = (int, SupportsInt)  # int first, because a look at a protocol takes microseconds
    if not (isinstance(low, number) and isinstance(high, number) and isinstance(size, Iterable)):
        raise ArgumentError(f"randint: low and high are ints and size is a sequence, not {low!r}, {high!r}, {size!r}")
    numbers = _integer_range(int(low), int(high), "randint")
    target_dtype = dtypes.int64 if dtype is None and out is None else dtype
    output = allocate_output("randint", (tuple(size),), {}, target_dtype, device, out)
    _fill_random("integer_fill", output, numbers, generator, out is not None)
    return finalize_output(output, "randint", requires_grad, None, layout, pin_memory)


def randint_like(
    input: Tensor, *bounds: int, generator: Generator | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: MemoryFormat | None = None, **named: int,
) -> Tensor:  # fmt: skip
    """Sample integers from [0, high) or [low, high), with the shape and dtype of `input`.

    Args:
        input: Tensor whose shape the result has.
        *bounds: `high`, or `low` and `high`.
        generator: Source of random numbers; None: the default generator.
        dtype: Dtype of the result; None: that of `input`.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: that of `input`.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.
        memory_format: Accepted for compatibility with PyTorch.
        **named: `low=` and `high=`.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ArgumentError: If `high` is missing, or `low` is not below it.

    Example:
        >>> wg.randint_like(wg.zeros(2, 3), 1)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    only_tensors("randint_like", input)
    positional_names = [name for name in ("low", "high") if name not in named][-max(len(bounds), 1) :]
    arguments = dict(zip(positional_names, bounds, strict=False)) | named
    if set(arguments) not in ({"high"}, {"low", "high"}) or len(arguments) != len(bounds) + len(named):
        raise ArgumentError("randint_like: takes randint_like(input, high) or randint_like(input, low, high)")
    output = empty_like(input, dtype=dtype, device=device, memory_format=memory_format)
    _fill_random(
        "integer_fill",
        output,
        _integer_range(arguments.get("low", 0), arguments["high"], "randint_like"),
        generator,
        False,
    )
    return finalize_output(output, "randint_like", requires_grad, None, layout, pin_memory)


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """Sample 1 with probability `p` (by default the element of `input`) and 0 otherwise, in the dtype of `input`.

    Args:
        input: Floating tensor of probabilities; with `p`, a tensor of any floating dtype.
        p: Probability of 1; None: the elements of `input`.
        generator: Source of random numbers; None: the default generator.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ArgumentError: `p`, or on `cpu` an element of `input`, is not between 0 and 1.

    Example:
        >>> wg.bernoulli(wg.tensor([0.0, 1.0]))
        tensor([0., 1.])
    """
    if p is not None:
        output = _fill_random("bernoulli_fill", empty_like(input), (_probability(p, "bernoulli"),), generator, False)
    else:
        check_interval(_require_floating(input, "bernoulli"), 0, 1, "bernoulli", "input")
        output = draw("bernoulli_draw", (input,), generator)
    return output if out is None else copy_to_out(output, out, "bernoulli")


def _probability(p: float, where: str) -> float:
    if not 0 <= p <= 1:
        raise ArgumentError(f"{where}: a probability lies between 0 and 1, not {p}")
    return float(p)


def normal(
    mean: Tensor | float = 0.0, std: Tensor | float = 1.0, size: Sequence[int] | None = None, *,
    generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Sample from normal distributions.

    Args:
        mean: A number, or a tensor with the mean of each element.
        std: A number, or a tensor with the standard deviation of each element; shapes broadcast.
        size: Shape of the result if mean and std are numbers: only then the options below are allowed, too.
        generator: Generator to use instead of the default one.
        out: Tensor to write the result to.
        dtype: Dtype of the result for numbers `mean` and `std`; None: the default dtype.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result; None: the default device.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Tensor of shape `size`, or of the shape that `mean` and `std` broadcast to.

    Raises:
        ArgumentError: `std` is negative (elements are checked on `cpu`), `size` is missing, or an option is passed
            with a tensor as `mean` or `std`.

    Example:
        >>> wg.normal(wg.tensor([1.0, 2.0]), 0.0)
        tensor([1., 2.])
    """
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentError(f"normal: std must not be negative, got {std}")
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        options = {"size": size, "dtype": dtype, "layout": layout, "device": device}
        names = [name for name, value in options.items() if value is not None]
        names += [name for name, value in (("requires_grad", requires_grad), ("pin_memory", pin_memory)) if value]
        if names:
            raise ArgumentError(
                f"normal: with a tensor as mean or std, the result has its shape, dtype and device; leave out "
                f"{', '.join(names)}, or pass numbers"
            )
        if isinstance(std, Tensor):
            check_interval(std, 0, math.inf, "normal", "std")
        return finalize_output(draw("normal_around", (mean, std), generator), "normal", False, out)
    if size is None:
        raise ArgumentError("normal: numbers mean and std need size=")
    output = _require_floating(allocate_output("normal", (tuple(size),), {}, dtype, device, out), "normal")
    _fill_random("normal_fill", output, (float(mean), float(std)), generator, out is not None)
    return finalize_output(output, "normal", requires_grad, None, layout, pin_memory)


# Sampling on the host -------------------------------------------------------------------------------------------------


def philox(count: int, seed: int, offset: int) -> Array:
    """Return Philox4x32-10 words 0 and 1 of the counters (0, offset) to (count - 1, offset).

    They are equal to those that kernels compute.
    """
    index = np.arange(count, dtype=np.uint64)
    mask32, shift32 = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = index & mask32, index >> shift32
    c, d = np.full(count, offset & 0xFFFFFFFF, np.uint64), np.full(count, offset >> 32, np.uint64)
    k, l = seed & 0xFFFFFFFF, seed >> 32  # noqa: E741
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, c = (q >> shift32) ^ b ^ np.uint64(k), (p >> shift32) ^ d ^ np.uint64(l)
        b, d = q & mask32, p & mask32
        k, l = (k + 0x9E3779B9) & 0xFFFFFFFF, (l + 0xBB67AE85) & 0xFFFFFFFF  # noqa: E741
    return a << shift32 | b


def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a random permutation of 0 to n - 1: the sorting order of n random 64-bit numbers. Sorts on the host.

    Args:
        n: Number of elements.
        generator: Source of random numbers; None: the default generator.
        out: Tensor to write the result to.
        dtype: Dtype of the result; None: int64.
        layout: Accepted for compatibility with PyTorch.
        device: Device of the result.
        requires_grad: Whether to record operations on the result.
        pin_memory: Whether to use page-locked host memory.

    Returns:
        Vector of `n` elements.

    Example:
        >>> wg.randperm(4).sort()[0]
        tensor([0, 1, 2, 3])
    """
    n = to_integer(n, "randperm", "n")
    order = np.argsort(philox(n, *(generator or default_generator).take(1)))  # distinct: Philox is a bijection
    output = host_data.from_host(order, *resolve_dtype_and_device(dtype, device, out, dtypes.int64))
    return finalize_output(output, "randperm", requires_grad, out, layout, pin_memory)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Sample indices with probabilities proportional to the weights in `input`. Runs on the host.

    With replacement it inverts the cumulative sums; without, it takes the largest values of log(weight) plus Gumbel
    noise (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).

    Args:
        input: Weights `(n,)` or `(rows, n)`, not negative, not all 0.
        num_samples: Number of samples for each row.
        replacement: Whether an index may be drawn again. Without it, indices of weight 0 come last.
        generator: Generator to use instead of the default one.
        out: Tensor to write the result to.

    Returns:
        int64 indices, `(num_samples,)` or `(rows, num_samples)`.

    Raises:
        ArgumentError: Weights are invalid, or there are fewer than `num_samples` without replacement.

    Example:
        >>> wg.multinomial(wg.tensor([0.0, 1.0, 0.0]), 1)
        tensor([1])
    """
    weights = host_data.host_array(input.detach()).astype(np.float64)
    rows = np.atleast_2d(weights)
    if (rows < 0).any() or not np.isfinite(rows).all() or not (rows.sum(-1) > 0).all():
        raise ArgumentError("multinomial: weights must be finite, not negative, and not all 0")
    if not replacement and num_samples > rows.shape[1]:
        raise ArgumentError(f"multinomial: {num_samples} samples without replacement of {rows.shape[1]} weights")
    shape = (rows.shape[0], num_samples if replacement else rows.shape[1])
    words = philox(shape[0] * shape[1], *(generator or default_generator).take(1)).reshape(shape)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    if replacement:
        cumulative = np.cumsum(rows, -1)
        indices = np.stack(
            [np.searchsorted(s, v * s[-1], side="right") for s, v in zip(cumulative, uniform, strict=True)]
        )
    else:
        with np.errstate(divide="ignore"):
            indices = np.argsort(-(np.log(rows) - np.log(-np.log(uniform))), -1, kind="stable")[:, :num_samples]
    result = indices if weights.ndim == 2 else indices[0]
    output = host_data.from_host(result.astype(np.int64), dtypes.int64, input.meta.device)
    return output if out is None else copy_to_out(output, out, "multinomial")


# In-place methods -----------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from .runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class _Methods(TensorBase):
    """In-place methods; `install` copies them to `Tensor`, so `self` is a Tensor."""

    def uniform_(
        self, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **named: float
    ) -> Tensor:
        """Fill with samples of the uniform distribution over [from, to).

        Args:
            from_: Lower bound, included.
            to: Upper bound, excluded.
            generator: Source of random numbers; None: the default generator.
            **named: `from=`: the lower bound.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If the lower bound is above the upper one.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> x = wg.empty(3).uniform_(2, 3)
            >>> bool(((x >= 2) & (x < 3)).all())
            True
        """
        low, high = float(named.pop("from", from_)), float(to)
        if named:
            raise ArgumentError(f"uniform_() got an unexpected keyword argument {next(iter(named))!r}")
        if high < low:
            raise ArgumentError(f"uniform_: from {low} is above to {high}")
        _require_floating(self, "uniform_")
        return _fill_random("uniform_fill", self, (low, high, _uniform_levels(self.meta.dtype)), generator, True)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with samples of the normal distribution.

        Args:
            mean: Mean.
            std: Standard deviation.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `std` is negative.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> wg.empty(2).normal_(1.5, 0.0)
            tensor([1.5000, 1.5000])
        """
        if std < 0:
            raise ArgumentError(f"normal_: std must not be negative, got {std}")
        return _fill_random(
            "normal_fill", _require_floating(self, "normal_"), (float(mean), float(std)), generator, True
        )

    def bernoulli_(self, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Fill with 1 with probability `p`, else 0.

        Args:
            p: Number, or a tensor of probabilities that expands to this tensor's shape.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `p`, or on `cpu` one of its elements, is not between 0 and 1.

        Example:
            >>> wg.empty(2).bernoulli_(wg.tensor([0.0, 1.0]))
            tensor([0., 1.])
        """
        if isinstance(p, Tensor):
            return self.copy_(bernoulli(p.expand(self.meta.shape), generator=generator))
        return _fill_random("bernoulli_fill", self, (_probability(p, "bernoulli_"),), generator, True)

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with samples of the exponential distribution with mean 1 / lambd.

        Args:
            lambd: Rate, above 0.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `lambd` is not positive.
            UnsupportedDType: If the dtype is not floating.

        Example:
            >>> bool((wg.empty(3).exponential_() >= 0).all())
            True
        """
        if not lambd > 0:
            raise ArgumentError(f"exponential_: lambd must be positive, got {lambd}")
        return _fill_random(
            "exponential_fill", _require_floating(self, "exponential_"), (float(lambd),), generator, True
        )

    def random_(self, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Tensor:
        """Fill with integers from [from, to).

        `random_(to)` starts at 0; `random_()` uses all values of the dtype from 0 on.

        Args:
            from_: Lower bound, included.
            to: Upper bound, excluded.
            generator: Source of random numbers; None: the default generator.

        Returns:
            This tensor.

        Raises:
            ArgumentError: If `from_` is not below `to`.

        Example:
            >>> wg.empty(2).random_(3, 4)
            tensor([3., 3.])
        """
        dtype = self.meta.dtype
        low, high = (0, from_) if to is None and from_ else (from_, to)
        if not high:
            bits = {"f": {"float64": 53, "float16": 11, "bfloat16": 8}.get(dtype.name, 24), "b": 1, "u": 8}
            high = (1 << bits.get(dtype.kind, 8 * dtype.itemsize - 1)) + (dtype.kind == "f")
        return _fill_random("integer_fill", self, _integer_range(low, high, "random_"), generator, True)


def install() -> None:
    """Add the in-place methods to `Tensor`."""
    for name, value in vars(_Methods).items():
        if not name.startswith("__"):
            setattr(Tensor, name, value)
