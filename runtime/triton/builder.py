"""What a Triton operation does on NumPy arrays: Triton's interpreter, with what it gets wrong made right.

Corrected are bfloat16 (kept as its bits in uint16, calculated in float32, rounded to nearest even), one-bit integers
(they wrap), NaN in minimum and maximum, conversions of floats that no integer holds (they saturate as the hardware
does), `fma` (one rounding) and the high half of products. A product with `input_precision="tf32"` rounds its operands
to 10 bits as tensor cores do. What is undefined on a device is made visible: lanes that a load masks off without
giving a value hold NaN, or an integer far from any index.

Every access is checked. A pointer carries the argument it was computed from through all operations on it, and each
active lane must lie in that argument's memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from ..errors import LaunchError

__all__ = ["Builder", "Region", "dtype_of", "narrow", "widen"]

Array = np.ndarray[Any, Any]

_REGION = "weftgrad.region"  # in a pointer's attributes: the argument it was computed from
_GARBAGE = 0xA5  # each byte of an integer that no load defined
dtype_of: Callable[[Any], np.dtype[Any]] = stock._get_np_dtype


@dataclass(frozen=True, slots=True)
class Region:
    """The memory of a pointer argument: it points to `address`, and `[low, high)` may be accessed."""

    name: str
    address: int
    low: int
    high: int


def widen(bits: Array) -> Array:
    """float32 of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: Array) -> Array:
    """bfloat16 bits of float32 values, rounded to nearest even; every NaN becomes the quiet one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _tf32(values: Array) -> Array:
    """float32 values rounded to TF32's 10 bits of fraction, ties away from zero, as `cvt.rna.tf32` does."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _to_integers(values: Array, target: np.dtype[Any]) -> Array:
    """Floats to integers as `cvt.rzi` gives them: towards zero, saturated at 16 bits or more, then cut to the type."""
    wide = np.dtype(f"{target.kind}{max(target.itemsize, 2)}")
    limits = np.iinfo(wide)
    values = np.trunc(values.astype(np.float64))
    small, large = values < limits.min, values >= float(limits.max)
    found = np.where(small | large | np.isnan(values), 0, values).astype(wide)
    found[small], found[large] = limits.min, limits.max
    return found.astype(target)


def _fma64(x: Array, y: Array, z: Array) -> Array:
    """x·y + z in float64 with the product's rounding error added back (Dekker 1971, Knuth's two-sum)."""

    def halves(a: Array) -> tuple[Array, Array]:
        scaled = a * 134217729.0
        high = scaled - (scaled - a)
        return high, a - high

    product = x * y
    (xh, xl), (yh, yl) = halves(x), halves(y)
    low = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total = product + z
    back = total - product
    rest = (product - (total - back)) + (z - back)
    exact = total + (rest + low)
    return np.where(np.isfinite(exact), exact, total)


def _high_half(a: Array, b: Array) -> Array:
    """The high half of products of unsigned integers of equal width."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"u{a.dtype.itemsize * 2}")
        return ((a.astype(wide) * b.astype(wide)) >> bits).astype(a.dtype)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = a & mask, a >> shift, b & mask, b >> shift
    middle = ah * bl + ((al * bl) >> shift)
    other = al * bh + (middle & mask)
    return ah * bh + (middle >> shift) + (other >> shift)


def _is_small(kind: Any) -> bool:
    return kind.name.startswith("fp8")


class Builder(InterpreterBuilder):
    """Operations of one launch: `begin` says what runs and which memory it may use."""

    def __init__(self) -> None:
        super().__init__()
        self.options: Any = dataclasses.replace(
            InterpreterOptions(),
            sanitize_overflow=False,  # int32 wraps, as on a device
            debug=True,  # device_assert holds
            default_dot_input_precision="ieee",
            allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
        )
        self.begin("", [], (1, 1, 1))

    def begin(self, kernel: str, regions: list[Region], grid: tuple[int, int, int]) -> None:
        """Prepare for a launch of `kernel`, named so in errors, over `grid`."""
        self.kernel = kernel
        self.regions = regions
        self.set_grid_dim(*grid)
        self.set_grid_idx(0, 0, 0)

    def pointer(self, region: Region, element: Any) -> TensorHandle:
        """A pointer to the elements of `region`."""
        return TensorHandle(np.array([region.address], np.uint64), tl.pointer_type(element), {_REGION: region})

    def element_type(self, dtype: Any) -> Any:
        """What `dtype.to_ir` gives for this builder: the dtype itself, so that unsigned integers stay such."""
        return dtype

    # constants

    def get_bf16(self, value: float) -> TensorHandle:
        return TensorHandle(narrow(np.array([value], np.float32)), tl.bfloat16)

    def get_all_ones_value(self, type: Any) -> TensorHandle:
        kind = dtype_of(type)
        ones = np.ones(1, bool) if kind == np.bool_ else np.full(kind.itemsize, 0xFF, np.uint8).view(kind)
        return TensorHandle(ones, type.scalar)

    # element by element

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Any) -> TensorHandle:
        kind = lhs.dtype.scalar
        a, b = lhs.data, rhs.data
        if a.dtype == np.bool_ and b.dtype == np.bool_:
            out = op(a.astype(np.int8), b.astype(np.int8))
            out = out if out.dtype == np.bool_ else (out & 1).astype(np.bool_)
        elif kind == tl.bfloat16:
            out = op(widen(a), widen(b))
            out = narrow(out) if out.dtype.kind == "f" else out
        else:
            out = op(a, b)
        if out.dtype == np.bool_:
            return TensorHandle(out, tl.int1)
        return TensorHandle(out.astype(dtype_of(kind), copy=False), kind)

    def create_minnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(self, arg: TensorHandle, low: TensorHandle, high: TensorHandle, nan: Any) -> TensorHandle:
        carry = nan == tl.PropagateNan.ALL
        held = self.binary_op(arg, low, np.maximum if carry else np.fmax)
        return self.binary_op(held, high, np.minimum if carry else np.fmin)

    def create_idiv(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """Towards zero, as in C. By zero it is undefined there, and 0 here."""
        return self.binary_op(lhs, rhs, lambda a, b: (a - np.fmod(a, b)) // b)

    def create_ashr(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.right_shift)

    def create_umulhi(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        kind = lhs.data.dtype
        unsigned = np.dtype(f"u{kind.itemsize}")
        return TensorHandle(_high_half(lhs.data.view(unsigned), rhs.data.view(unsigned)).view(kind), lhs.dtype.scalar)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        kind = z.dtype.scalar
        a, b, c = ((widen(h.data) if kind == tl.bfloat16 else h.data).astype(np.float64) for h in (x, y, z))
        if kind == tl.float64:
            return TensorHandle(_fma64(a, b, c), kind)
        out = a * b + c  # the product is exact
        return TensorHandle(narrow(out) if kind == tl.bfloat16 else out.astype(z.data.dtype), kind)

    def unary_op(self, arg: TensorHandle, op: Any) -> TensorHandle:
        kind = arg.dtype.scalar
        if kind == tl.bfloat16:
            return TensorHandle(narrow(op(widen(arg.data))), kind)
        return TensorHandle(op(arg.data).astype(arg.data.dtype, copy=False), kind)

    def create_rsqrt(self, arg: TensorHandle) -> TensorHandle:
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    # conversions

    def cast_impl(self, src: TensorHandle, dst_type: Any) -> TensorHandle:
        source, target = src.dtype.scalar, dst_type.scalar
        if _is_small(source) or _is_small(target):
            return super().cast_impl(src, dst_type)
        data = widen(src.data) if source == tl.bfloat16 else src.data
        kind = dtype_of(target)
        if target == tl.bfloat16:
            return TensorHandle(narrow(data.astype(np.float32)), target)
        if data.dtype.kind == "f" and kind.kind in "iu":
            return TensorHandle(_to_integers(data, kind), target)
        return TensorHandle(data.astype(kind), target)

    def create_fp_to_fp(self, src: TensorHandle, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        nearest = rounding_mode is None or rounding_mode == stock._ir.ROUNDING_MODE.RTNE
        if nearest and not (_is_small(src.dtype.scalar) or _is_small(dst_type.scalar)):
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    # blocks

    def create_splat(self, ret_ty: Any, arg: TensorHandle) -> TensorHandle:
        return TensorHandle(np.broadcast_to(arg.data.reshape(()), ret_ty.shape), arg.dtype.scalar)

    def create_unsplat(self, arg: TensorHandle) -> TensorHandle:
        return TensorHandle(arg.data.reshape(-1)[:1], arg.dtype.scalar)

    def create_dot(
        self, a: TensorHandle, b: TensorHandle, d: TensorHandle, input_precision: Any, max_num_imprecise_acc: Any
    ) -> TensorHandle:
        kind = d.dtype.scalar
        if _is_small(a.dtype.scalar) or _is_small(b.dtype.scalar):
            return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)
        x, y = (widen(h.data) if h.dtype.scalar == tl.bfloat16 else h.data for h in (a, b))
        start = widen(d.data) if kind == tl.bfloat16 else d.data
        if x.dtype.kind in "iub":
            # Exact in float64: 8-bit operands.
            return TensorHandle((np.matmul(x, y, dtype=np.float64) + start).astype(start.dtype), kind)
        if x.dtype == np.float32 and input_precision == stock._ir.INPUT_PRECISION.TF32:
            x, y = _tf32(x), _tf32(y)
        wide = np.float64 if x.dtype == np.float64 else np.float32
        out = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False)) + start.astype(wide, copy=False)
        return TensorHandle(narrow(out) if kind == tl.bfloat16 else out.astype(start.dtype, copy=False), kind)

    def create_histogram(self, data: TensorHandle, bins: int, mask: TensorHandle | None) -> TensorHandle:
        counted = (data.data >= 0) & (data.data < bins)
        if mask is not None:
            counted &= mask.data
        found = np.bincount(data.data[counted].astype(np.int64), minlength=bins)
        return TensorHandle(found.astype(np.int32), tl.int32)

    # memory

    def create_masked_load(self, ptrs: TensorHandle, mask: Any, other: Any, *policy: Any, **named: Any) -> TensorHandle:
        element = ptrs.get_element_ty()
        kind = dtype_of(element)
        active = mask if isinstance(mask, np.ndarray) else mask.data
        self._check(ptrs, active, kind.itemsize, "reads")
        if other is None:
            fill = 0xFF if element.is_floating() else _GARBAGE  # all ones is a NaN
            values = np.full(ptrs.data.size * kind.itemsize, fill, np.uint8).view(kind).reshape(ptrs.data.shape)
        else:
            values = other.data
        return TensorHandle(stock._interpreter.load(ptrs.data, active, values, kind), element)

    def create_masked_store(self, ptrs: TensorHandle, value: TensorHandle, mask: Any, *policy: Any) -> Any:
        active = mask if isinstance(mask, np.ndarray) else mask.data
        self._check(ptrs, active, dtype_of(ptrs.get_element_ty()).itemsize, "writes")
        return stock._interpreter.store(ptrs.data, np.ascontiguousarray(value.data), active)

    def create_atomic_cas(self, ptr: TensorHandle, cmp: TensorHandle, val: TensorHandle, *how: Any) -> TensorHandle:
        self._check(ptr, np.ones(ptr.data.shape, bool), dtype_of(ptr.get_element_ty()).itemsize, "writes")
        return super().create_atomic_cas(ptr, cmp, val, *how)

    def create_atomic_rmw(
        self, op: Any, ptr: TensorHandle, val: TensorHandle, mask: TensorHandle, *how: Any
    ) -> TensorHandle:
        element = ptr.get_element_ty()
        self._check(ptr, mask.data, dtype_of(element).itemsize, "writes")
        if element == tl.bfloat16 and op == stock._ir.ATOMIC_OP.FADD:
            return self._add_bfloat16(ptr, val, mask)
        return super().create_atomic_rmw(op, ptr, val, mask, *how)

    def _add_bfloat16(self, ptr: TensorHandle, val: TensorHandle, mask: TensorHandle) -> TensorHandle:
        """One lane after the other: several may add to one element."""
        before = np.zeros(ptr.data.shape, np.uint16)
        for place in np.argwhere(mask.data):
            lane = tuple(place)
            address, yes = ptr.data[lane].reshape(1), np.ones(1, bool)
            old = stock._interpreter.load(address, yes, np.zeros(1, np.uint16), np.dtype(np.uint16))
            stock._interpreter.store(address, narrow(widen(old) + widen(val.data[lane].reshape(1))), yes)
            before[lane] = old[0]
        return TensorHandle(before, tl.bfloat16)

    def create_make_tensor_descriptor(self, base: TensorHandle, *how: Any) -> Any:
        made = super().create_make_tensor_descriptor(base, *how)
        places = made.materialize_pointers

        def materialize_pointers(offsets: Any) -> Any:
            ptrs, mask = places(offsets)
            ptrs.attr = base.attr
            return ptrs, mask

        made.materialize_pointers = materialize_pointers
        return made

    def _check(self, ptrs: TensorHandle, active: Array, itemsize: int, verb: str) -> None:
        """Raise `LaunchError` if an active lane lies outside the memory of the pointer's argument."""
        own = ptrs.attr.get(_REGION)
        regions = self.regions if own is None else [own]
        wrong = np.ones(ptrs.data.shape, bool)
        for region in regions:
            room = region.high - region.low - itemsize
            if room < 0:
                continue
            offsets = ptrs.data - np.uint64(region.low)  # wraps for what lies below
            if int(offsets.max()) <= room:
                return
            wrong &= offsets > np.uint64(room)
        wrong &= active
        if wrong.any():
            self._refuse(ptrs.data[wrong], regions, verb)

    def _refuse(self, addresses: Array, regions: list[Region], verb: str) -> None:
        first = int(addresses.reshape(-1)[0])
        if not regions:
            raise LaunchError(f"{self.kernel}: {verb} memory, and has no pointer argument")
        nearest = min(regions, key=lambda r: max(r.low - first, first - r.high))
        size = nearest.high - nearest.low
        raise LaunchError(
            f"{self.kernel}: program {self.grid_idx} {verb} outside the memory of {nearest.name}: at byte "
            f"{first - nearest.low} of {size} ({addresses.size} lanes are outside)"
        )


def _carrying(name: str) -> Any:
    """The operation `name`; its result points into the argument that its operand does (of two, into either)."""
    plain = getattr(Builder, name)

    def operation(self: Builder, *operands: Any) -> Any:
        made = plain(self, *operands)
        if made.dtype.scalar.is_ptr():
            regions = {h.attr.get(_REGION) for h in operands if isinstance(h, TensorHandle) and h.dtype.scalar.is_ptr()}
            if len(regions) == 1 and None not in regions:
                made.attr = {_REGION: regions.pop()}
        return made

    return operation


for _name in (
    "create_addptr",
    "create_bitcast",
    "create_broadcast",
    "create_expand_dims",
    "create_reshape",
    "create_select",
    "create_splat",
    "create_trans",
    "create_unsplat",
):
    setattr(Builder, _name, _carrying(_name))
