"""Triton operations on NumPy arrays: Triton's interpreter, corrected where its results differ from the hardware's.

- bfloat16 is stored as bits in uint16, computed in float32, and rounded to nearest even.
- One-bit integers wrap. Minimum and maximum treat NaN as the hardware does.
- Conversions saturate floats out of an integer's range (at 16 bits or more: 8-bit results keep the low byte of a 16-bit
  one). NaN gives 0.
- `fma` does not round the product (the sum is rounded in float64 first, then to its type). The high half of a product
  is exact.
- A product with `input_precision="tf32"` rounds its operands to 10 fraction bits, as tensor cores do.
- Lanes that a load masks off without a default value are undefined on a device. Here they hold NaN, or a conspicuous
  integer (bytes 0xA5; in 32 bits or more far from any valid index), so that their use shows.

Every memory access is checked. A pointer carries the argument from which it was computed through the operations at the
end of this module, and each active lane must access that argument's memory. A pointer without an argument, or computed
from several, may access the memory of any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle

from ..dtypes import Array
from ..errors import LaunchError

if TYPE_CHECKING:
    from .triton_types import Handle, TritonType

__all__ = ["Builder", "Region", "dtype_of", "narrow", "widen"]


_REGION = "weftgrad.region"  # key in a pointer's attributes: the argument from which it was computed
_GARBAGE_BYTE = 0xA5  # every byte of an integer in a lane that a load masked off
dtype_of: Callable[[TritonType], np.dtype[np.generic]] = stock._get_np_dtype


@dataclass(frozen=True, slots=True)
class Region:
    """The memory of a pointer argument: the pointer is `address`, and the bytes `[low, high)` may be accessed."""

    name: str
    address: int
    low: int
    high: int


def widen(bits: Array) -> Array:
    """Convert bfloat16 bits to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: Array) -> Array:
    """Convert floats to bfloat16 bits, by way of float32, rounding to nearest even. Every NaN becomes the quiet NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _tf32(values: Array) -> Array:
    """Round float32 values to TF32's 10 fraction bits, ties away from zero, as `cvt.rna.tf32` does."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _to_integers(values: Array, target: np.dtype[np.generic]) -> Array:
    """Convert floats to integers as `cvt.rzi` does.

    Round towards zero, saturate to the range of the target (of 16 bits if it has 8), and keep the target's low bits.
    NaN gives 0.
    """
    wide_type = np.dtype(f"{target.kind}{max(target.itemsize, 2)}")
    limits = np.iinfo(wide_type)
    values = np.trunc(values.astype(np.float64))
    too_small, too_large = values < limits.min, values >= float(limits.max)
    integers = np.where(too_small | too_large | np.isnan(values), 0, values).astype(wide_type)
    integers[too_small], integers[too_large] = limits.min, limits.max
    return integers.astype(target)


def _fma64(x: Array, y: Array, z: Array) -> Array:
    """Compute x·y + z in float64 with the product's rounding error added back (Dekker 1971, Knuth's two-sum)."""

    def halves(a: Array) -> tuple[Array, Array]:
        scaled = a * 134217729.0
        high = scaled - (scaled - a)
        return high, a - high

    product = x * y
    (xh, xl), (yh, yl) = halves(x), halves(y)
    product_error = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total = product + z
    product_part: Array = total - product
    rounding_error = (product - (total - product_part)) + (z - product_part)
    corrected = total + (rounding_error + product_error)
    return np.where(np.isfinite(corrected), corrected, total)


def _high_half(a: Array, b: Array) -> Array:
    """Return the high half of products of unsigned integers of equal width."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide_type = np.dtype(f"u{a.dtype.itemsize * 2}")
        return ((a.astype(wide_type) * b.astype(wide_type)) >> bits).astype(a.dtype)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = a & mask, a >> shift, b & mask, b >> shift
    middle_sum = ah * bl + ((al * bl) >> shift)
    cross_sum = al * bh + (middle_sum & mask)
    return ah * bh + (middle_sum >> shift) + (cross_sum >> shift)


def _is_fp8(dtype: TritonType) -> bool:
    return dtype.name.startswith("fp8")


class Builder(InterpreterBuilder):
    """The operations of one launch at a time; `begin` sets the kernel and the memory that it may access."""

    def __init__(self) -> None:
        super().__init__()
        self.options = dataclasses.replace(
            InterpreterOptions(),
            sanitize_overflow=False,  # int32 wraps, as on a device
            debug=True,  # device_assert holds
            default_dot_input_precision="ieee",
            allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
        )
        self.begin("", [], (1, 1, 1))

    def begin(self, kernel: str, regions: list[Region], grid: tuple[int, int, int]) -> None:
        """Prepare for a launch over `grid`. kernel: its name in errors. regions: memory that it may access."""
        self.kernel = kernel
        self.regions = regions
        self.set_grid_dim(*grid)
        self.set_grid_idx(0, 0, 0)

    def pointer(self, region: Region, element: TritonType) -> Handle:
        """Return a pointer to the elements of `region`."""
        return TensorHandle(np.array([region.address], np.uint64), tl.pointer_type(element), {_REGION: region})

    def element_type(self, dtype: TritonType) -> TritonType:
        """Return the result of `dtype.to_ir` for this builder: the dtype itself, so that integers stay unsigned."""
        return dtype

    # constants

    def get_bf16(self, value: float) -> Handle:
        return TensorHandle(narrow(np.array([value], np.float32)), tl.bfloat16)

    def get_all_ones_value(self, type: TritonType) -> Handle:
        dtype = dtype_of(type)
        ones = np.ones(1, bool) if dtype == np.bool_ else np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)
        return TensorHandle(ones, type.scalar)

    # element by element

    def binary_op(self, lhs: Handle, rhs: Handle, op: Callable[[Array, Array], Array]) -> Handle:
        dtype = lhs.dtype.scalar
        a, b = lhs.data, rhs.data
        if a.dtype == np.bool_ and b.dtype == np.bool_:
            out = op(a.astype(np.int8), b.astype(np.int8))
            out = out if out.dtype == np.bool_ else (out & 1).astype(np.bool_)
        elif dtype == tl.bfloat16:
            out = op(widen(a), widen(b))
            out = narrow(out) if out.dtype.kind == "f" else out
        else:
            out = op(a, b)
        if out.dtype == np.bool_:
            return TensorHandle(out, tl.int1)
        return TensorHandle(out.astype(dtype_of(dtype), copy=False), dtype)

    def create_minnumf(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(self, arg: Handle, low: Handle, high: Handle, nan: object) -> Handle:
        propagate_nan = nan == tl.PropagateNan.ALL
        bounded = self.binary_op(arg, low, np.maximum if propagate_nan else np.fmax)
        return self.binary_op(bounded, high, np.minimum if propagate_nan else np.fmin)

    def create_idiv(self, lhs: Handle, rhs: Handle) -> Handle:
        """Divide, rounding towards zero as in C. Division by zero is undefined in C, and gives 0 here."""
        return self.binary_op(lhs, rhs, lambda a, b: (a - np.fmod(a, b)) // b)

    def create_ashr(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.right_shift)

    def create_umulhi(self, lhs: Handle, rhs: Handle) -> Handle:
        dtype = lhs.data.dtype
        unsigned = np.dtype(f"u{dtype.itemsize}")
        return TensorHandle(_high_half(lhs.data.view(unsigned), rhs.data.view(unsigned)).view(dtype), lhs.dtype.scalar)

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        dtype = z.dtype.scalar
        a, b, c = ((widen(h.data) if dtype == tl.bfloat16 else h.data).astype(np.float64) for h in (x, y, z))
        if dtype == tl.float64:
            return TensorHandle(_fma64(a, b, c), dtype)
        out = a * b + c  # the product of two float32 values is exact in float64; the sum rounds twice
        return TensorHandle(narrow(out) if dtype == tl.bfloat16 else out.astype(z.data.dtype), dtype)

    def unary_op(self, arg: Handle, op: Callable[[Array], Array]) -> Handle:
        dtype = arg.dtype.scalar
        if dtype == tl.bfloat16:
            return TensorHandle(narrow(op(widen(arg.data))), dtype)
        return TensorHandle(op(arg.data).astype(arg.data.dtype, copy=False), dtype)

    def create_rsqrt(self, arg: Handle) -> Handle:
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    # conversions

    def cast_impl(self, src: Handle, dst_type: TritonType) -> Handle:
        source, target = src.dtype.scalar, dst_type.scalar
        if _is_fp8(source) or _is_fp8(target):
            return super().cast_impl(src, dst_type)
        data = widen(src.data) if source == tl.bfloat16 else src.data
        dtype = dtype_of(target)
        if target == tl.bfloat16:
            return TensorHandle(narrow(data.astype(np.float32)), target)
        if data.dtype.kind == "f" and dtype.kind in "iu":
            return TensorHandle(_to_integers(data, dtype), target)
        return TensorHandle(data.astype(dtype), target)

    def create_fp_to_fp(self, src: Handle, dst_type: TritonType, rounding_mode: object) -> Handle:
        nearest = rounding_mode is None or rounding_mode == stock._ir.ROUNDING_MODE.RTNE
        if nearest and not (_is_fp8(src.dtype.scalar) or _is_fp8(dst_type.scalar)):
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    # blocks

    def create_splat(self, ret_ty: TritonType, arg: Handle) -> Handle:
        return TensorHandle(np.broadcast_to(arg.data.reshape(()), ret_ty.shape), arg.dtype.scalar)

    def create_unsplat(self, arg: Handle) -> Handle:
        return TensorHandle(arg.data.reshape(-1)[:1], arg.dtype.scalar)

    def create_dot(
        self, a: Handle, b: Handle, d: Handle, input_precision: object, max_num_imprecise_acc: int
    ) -> Handle:
        dtype = d.dtype.scalar
        if _is_fp8(a.dtype.scalar) or _is_fp8(b.dtype.scalar):
            return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)
        x, y = (widen(h.data) if h.dtype.scalar == tl.bfloat16 else h.data for h in (a, b))
        accumulator = widen(d.data) if dtype == tl.bfloat16 else d.data
        if x.dtype.kind in "iub":
            # 8-bit operands: exact in float64.
            return TensorHandle((np.matmul(x, y, dtype=np.float64) + accumulator).astype(accumulator.dtype), dtype)
        if x.dtype == np.float32 and input_precision == stock._ir.INPUT_PRECISION.TF32:
            x, y = _tf32(x), _tf32(y)
        wide_type = np.float64 if x.dtype == np.float64 else np.float32
        out = np.matmul(x.astype(wide_type, copy=False), y.astype(wide_type, copy=False)) + accumulator.astype(
            wide_type, copy=False
        )
        return TensorHandle(narrow(out) if dtype == tl.bfloat16 else out.astype(accumulator.dtype, copy=False), dtype)

    def create_histogram(self, data: Handle, bins: int, mask: Handle | None) -> Handle:
        in_range = (data.data >= 0) & (data.data < bins)
        if mask is not None:
            in_range &= mask.data
        counts = np.bincount(data.data[in_range].astype(np.int64), minlength=bins)
        return TensorHandle(counts.astype(np.int32), tl.int32)

    # memory

    def create_masked_load(
        self, ptrs: Handle, mask: Handle | Array, other: Handle | None, *policy: object, **kwargs: object
    ) -> Handle:
        element = ptrs.get_element_ty()
        dtype = dtype_of(element)
        active = mask if isinstance(mask, np.ndarray) else mask.data
        self._check(ptrs, active, dtype.itemsize, "reads")
        if other is None:
            fill = 0xFF if element.is_floating() else _GARBAGE_BYTE  # all ones is a NaN
            values = np.full(ptrs.data.size * dtype.itemsize, fill, np.uint8).view(dtype).reshape(ptrs.data.shape)
        else:
            values = other.data
        return TensorHandle(stock._interpreter.load(ptrs.data, active, values, dtype), element)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Handle | Array, *policy: object) -> object:
        active = mask if isinstance(mask, np.ndarray) else mask.data
        self._check(ptrs, active, dtype_of(ptrs.get_element_ty()).itemsize, "writes")
        return stock._interpreter.store(ptrs.data, np.ascontiguousarray(value.data), active)

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, *options: object) -> Handle:
        self._check(ptr, np.ones(ptr.data.shape, bool), dtype_of(ptr.get_element_ty()).itemsize, "writes")
        return super().create_atomic_cas(ptr, cmp, val, *options)

    def create_atomic_rmw(self, op: object, ptr: Handle, val: Handle, mask: Handle, *options: object) -> Handle:
        element = ptr.get_element_ty()
        self._check(ptr, mask.data, dtype_of(element).itemsize, "writes")
        if element == tl.bfloat16 and op == stock._ir.ATOMIC_OP.FADD:
            return self._add_bfloat16(ptr, val, mask)
        return super().create_atomic_rmw(op, ptr, val, mask, *options)

    def _add_bfloat16(self, ptr: Handle, val: Handle, mask: Handle) -> Handle:
        """Add lane by lane, because several lanes may add to the same element."""
        old_values = np.zeros(ptr.data.shape, np.uint16)
        for position in np.argwhere(mask.data):
            lane = tuple(position)
            address, active = ptr.data[lane].reshape(1), np.ones(1, bool)
            old = stock._interpreter.load(address, active, np.zeros(1, np.uint16), np.dtype(np.uint16))
            stock._interpreter.store(address, narrow(widen(old) + widen(val.data[lane].reshape(1))), active)
            old_values[lane] = old[0]
        return TensorHandle(old_values, tl.bfloat16)

    def create_make_tensor_descriptor(self, base: Handle, *options: object) -> object:
        descriptor = super().create_make_tensor_descriptor(base, *options)
        materialize = descriptor.materialize_pointers

        def materialize_pointers(offsets: object) -> tuple[Handle, Array]:
            ptrs, mask = materialize(offsets)
            ptrs.attr = base.attr
            return ptrs, mask

        descriptor.materialize_pointers = materialize_pointers
        return descriptor

    def _check(self, ptrs: Handle, active: Array, itemsize: int, verb: str) -> None:
        """Raise `LaunchError` if an active lane accesses memory outside the pointer's argument.

        If the pointer has no argument, or was computed from several, the memory of any argument is allowed.
        """
        origin = ptrs.attr.get(_REGION)
        regions = [origin] if isinstance(origin, Region) else self.regions
        outside = np.ones(ptrs.data.shape, bool)
        for region in regions:
            max_offset = region.high - region.low - itemsize
            if max_offset < 0:
                continue
            offsets = ptrs.data - np.uint64(region.low)  # unsigned: addresses below `low` wrap to large offsets
            if int(offsets.max()) <= max_offset:
                return
            outside &= offsets > np.uint64(max_offset)
        outside &= active
        if outside.any():
            self._raise_out_of_bounds(ptrs.data[outside], regions, verb)

    def _raise_out_of_bounds(self, addresses: Array, regions: list[Region], verb: str) -> None:
        first = int(addresses.reshape(-1)[0])
        if not regions:
            raise LaunchError(f"{self.kernel}: {verb} memory, but has no pointer argument")
        nearest = min(regions, key=lambda r: max(r.low - first, first - r.high))
        size = nearest.high - nearest.low
        raise LaunchError(
            f"{self.kernel}: program {self.grid_idx} {verb} outside the memory of {nearest.name}: at byte "
            f"{first - nearest.low} of {size} ({addresses.size} lanes are outside)"
        )


def _propagate_region(name: str) -> Callable[..., Handle]:
    """Return the operation `name`, extended so that a pointer result keeps its operands' region, if that is unique."""
    method = getattr(Builder, name)

    def operation(self: Builder, *operands: object) -> Handle:
        result = method(self, *operands)
        if result.dtype.scalar.is_ptr():
            regions = {h.attr.get(_REGION) for h in operands if isinstance(h, TensorHandle) and h.dtype.scalar.is_ptr()}
            if len(regions) == 1 and None not in regions:
                result.attr = {_REGION: regions.pop()}
        return result

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
    setattr(Builder, _name, _propagate_region(_name))
