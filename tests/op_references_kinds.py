"""NumPy references of ops that are not elementwise: index ops, views, convolutions, random numbers.

Each takes the operands' values as arrays, and the op's numbers and static arguments by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from op_convolution import CONVOLUTION_REFERENCES

Array = Any

# --- Index ops --------------------------------------------------------------------------------------------------------


def _target_coordinates(index: Array, size: int, dim: int) -> tuple[Array, tuple[Array, ...]]:
    """Return the coordinates that the elements of `index` name, whose own coordinate along `dim` the index replaces.

    Returns:
        A mask of the elements in the range 0 to `size`, and one coordinate array per dimension; 0 if out of range.
    """
    inside = (index >= 0) & (index < size)
    coordinates = list(np.indices(index.shape))
    if coordinates:
        coordinates[dim] = np.where(inside, index, 0)
    return inside, tuple(coordinates)


def _gather(x: Array, index: Array, dim: int) -> Array:
    inside, coordinates = _target_coordinates(index, x.shape[dim] if x.ndim else 1, dim)
    return np.where(inside, x[coordinates], x.dtype.type(0))


def _scatter(x: Array, index: Array, source: Array, dim: int, add: bool) -> Array:
    """Write (or add) one element after the other, in the order of the indices."""
    out = np.array(x)
    inside, coordinates = _target_coordinates(index, x.shape[dim] if x.ndim else 1, dim)
    for source_index in np.ndindex(index.shape):
        if inside[source_index]:
            target_index = tuple(int(p[source_index]) for p in coordinates)
            out[target_index] = out[target_index] + source[source_index] if add else source[source_index]
    return out


def _merge_dims(x: Array, dim: int, count: int) -> Array:
    """Merge `count` dimensions from `dim` on into one."""
    return x.reshape(*x.shape[:dim], math.prod(x.shape[dim : dim + count]), *x.shape[dim + count :])


def _take(x: Array, index: Array, dim: int, count: int, skipped: int = 0) -> Array:
    """Return the elements at `index` of `count` merged dimensions. `skipped`, a row without gradient, has no effect."""
    flat = _merge_dims(x, dim, count)
    inside = (index >= 0) & (index < flat.shape[dim])
    if not index.size or not flat.size:
        return np.zeros((*flat.shape[:dim], *index.shape, *flat.shape[dim + 1 :]), x.dtype)
    values = np.take(flat, np.where(inside, index, 0), axis=dim)
    return np.where(inside.reshape(*index.shape, *(1,) * (flat.ndim - dim - 1)), values, x.dtype.type(0))


def _put(x: Array, index: Array, source: Array, dim: int, count: int, add: bool) -> Array:
    """Write (or add) slices of `source` at `index` of `count` merged dimensions, one after the other."""
    out = np.array(x)
    flat = np.moveaxis(_merge_dims(out, dim, count), dim, 0)
    slices = np.moveaxis(source, range(dim, dim + index.ndim), range(index.ndim))
    for source_index in np.ndindex(index.shape):
        if 0 <= index[source_index] < len(flat):
            flat[index[source_index]] = (
                flat[index[source_index]] + slices[source_index] if add else slices[source_index]
            )
    return out


# --- Views ------------------------------------------------------------------------------------------------------------


def _strided(x: Array, size: Any, stride: Any, offset: int) -> Array:
    itemsize = x.itemsize
    flat = np.lib.stride_tricks.as_strided(x, (offset + 1,), (itemsize,))[offset:]
    return np.lib.stride_tricks.as_strided(flat, size, [s * itemsize for s in stride])


def _squeeze(x: Array, dim: Any) -> Array:
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return np.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def _unfold(x: Array, dimension: int, size: int, step: int) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dimension)
    return np.moveaxis(np.moveaxis(windows, dimension, 0)[::step], 0, dimension)


def _transpose(x: Array, dim0: int, dim1: int) -> Array:
    return np.swapaxes(x, dim0, dim1) if x.ndim else x


def _expand(x: Array, shape: tuple[int, ...]) -> Array:
    padded_shape = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [n if size == -1 else size for n, size in zip(padded_shape, shape, strict=True)])


def _index_along(x: Array, dim: int, item: Any) -> Array:
    """Return `x[..., item, ...]` with the int or slice `item` at dimension `dim`."""
    return x[(slice(None),) * (dim % x.ndim) + (item,)]


def _index(x: Array, items: tuple[Any, ...]) -> Array:
    return x[tuple(slice(*i) if isinstance(i, tuple) else i for i in items)]


# --- Random numbers ---------------------------------------------------------------------------------------------------


def philox(counter: Array, offset: int, seed: int) -> list[Array]:
    """Return the four words of Philox4x32-10 (Salmon et al. 2011, section 3.3) for counter (low half), offset (high).

    Each word is an array of uint64 with 32 significant bits.
    """
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    counter = np.asarray(counter, np.uint64)
    high = np.full(counter.shape, offset, np.uint64)
    left, right = [counter & low, high & low], [counter >> shift, high >> shift]  # words 0 and 2, words 1 and 3
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        products = [left[0] * np.uint64(0xD2511F53), left[1] * np.uint64(0xCD9E8D57)]
        left, right = (
            [(products[1 - i] >> shift) ^ right[i] ^ np.uint64(keys[i]) for i in (0, 1)],
            [products[1 - i] & low for i in (0, 1)],
        )
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [left[0], right[0], left[1], right[1]]


def _random_words(shape: tuple[int, ...], seed: int, offset: int) -> list[Array]:
    """Return four arrays of random words: each element draws by its position in row-major order."""
    count = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    return philox(count, offset, seed)


def _upper_53_bits(low: Array, high: Array) -> Array:
    """Return the upper 53 of 64 bits: as many as a float64 has."""
    return (high << np.uint64(32) | low) >> np.uint64(11)


def uniform_numbers(shape: tuple[int, ...], seed: int, offset: int, dtype: str) -> Array:
    """Return multiples of 2^-53 (float64) or 2^-24 (others) in [0, 1), as float64."""
    words = _random_words(shape, seed, offset)
    if dtype == "float64":
        return np.ldexp(_upper_53_bits(words[0], words[1]).astype(np.float64), -53)
    return np.ldexp((words[0] >> np.uint64(8)).astype(np.float64), -24)


def _normal(shape: tuple[int, ...], seed: int, offset: int, dtype: str) -> Array:
    """Return normally distributed numbers by the transform of Box and Muller (1958), from two uniform ones."""
    words = _random_words(shape, seed, offset)
    if dtype == "float64":
        above_0 = np.ldexp(_upper_53_bits(words[0], words[1]).astype(np.float64) + 1, -53)
        cycles = np.ldexp(_upper_53_bits(words[2], words[3]).astype(np.float64), -53)
    else:
        above_0 = np.ldexp(words[0].astype(np.float64) + 1, -32)
        cycles = np.ldexp((words[1] >> np.uint64(8)).astype(np.float64), -24)
    return np.sqrt(-2 * np.log(above_0)) * np.cos(2 * np.pi * cycles)


def _positions(x: Array) -> Array:
    return np.arange(x.size).reshape(x.shape)


def _uniform_fill(x: Array, low: float, high: float, levels: float, seed: int, offset: int, dtype: str) -> Array:
    """Round the draw down to a multiple of 1 / levels, the spacing that the dtype can hold everywhere in [0, 1)."""
    uniform = uniform_numbers(x.shape, seed, offset, dtype)
    return low + (high - low) * (uniform - np.mod(uniform, 1 / levels))


def _random_integers(x: Array, low: int, span: int, seed: int, offset: int, dtype: str) -> Array:
    first, second = (_random_words(x.shape, seed, offset + k)[0] for k in (0, 1))
    words = (first << np.uint64(31)) | (second >> np.uint64(1))
    return (words % np.uint64(span)).astype(np.int64) + low


def _scaled_integers(x: Array, low: int, span: int, seed: int, offset: int, dtype: str) -> Array:
    """Return the integer part of span times a fraction of 64 bits, in Python's integers, which do not overflow."""
    first, second = (_random_words(x.shape, seed, offset + k)[0].ravel().tolist() for k in (0, 1))
    scaled = [low + (span * (a << 32 | b) >> 64) for a, b in zip(first, second, strict=True)]
    return np.array(scaled, np.int64).reshape(x.shape)


def _partners(x: Array, seed: int, offset: int, dtype: str) -> Array:
    """Return for each position the integer part of position + 1 times a fraction of 32 bits."""
    words = _random_words(x.shape, seed, offset)[0].ravel().tolist()
    return np.array([(i + 1) * word >> 32 for i, word in enumerate(words)], np.int64).reshape(x.shape)


def _wide_partners(x: Array, seed: int, offset: int, dtype: str) -> Array:
    """Return for each position the integer part of position + 1 times a fraction of 64 bits."""
    first, second = (_random_words(x.shape, seed, offset + k)[0].ravel().tolist() for k in (0, 1))
    fractions = enumerate((a << 32 | b for a, b in zip(first, second, strict=True)), 1)
    return np.array([span * fraction >> 64 for span, fraction in fractions], np.int64).reshape(x.shape)


def _normalize_groups(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> tuple[Array, Array, Array]:
    """Return x with each group of channels of a sample standardised, the means and 1 / sqrt(variance + eps)."""
    rows = x.reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    mean, rstd = rows.mean(2), 1 / np.sqrt(rows.var(2) + eps)
    standardised = ((rows - mean[..., None]) * rstd[..., None]).reshape(x.shape)
    channel = (-1, *(1 for _ in x.shape[2:]))
    return standardised * weight.reshape(channel) + bias.reshape(channel), mean, rstd


def _shuffle(partners: Array) -> Array:
    """Return 0 to n - 1 after exchanging each element i with element partners[i]."""
    order = np.arange(partners.size)
    for i, partner in enumerate(partners.tolist()):
        order[[i, partner]] = order[[partner, i]]
    return order


def _dropout(x: Array, p: float, scale: float, seed: int, offset: int, dtype: str) -> Array:
    return np.where(uniform_numbers(x.shape, seed, offset, dtype) < p, 0, x * scale)


def _normal_around(mean: Array, std: Array, seed: int, offset: int, dtype: str) -> Array:
    shape = np.broadcast_shapes(mean.shape, std.shape)
    return mean + std * _normal(shape, seed, offset, dtype)


KIND_REFERENCES: dict[str, Callable[..., Array]] = {
    "gather": _gather,
    "take_at": _take,
    "embedding_rows": _take,
    "spread": lambda s, index, shape, dim: _scatter(np.zeros(shape, s.dtype), index, s, dim, True),
    "spread_at": lambda s, index, shape, dim, count: _put(np.zeros(shape, s.dtype), index, s, dim, count, True),
    "scatter": lambda x, index, source, dim: _scatter(x, index, source, dim, False),
    "scatter_add": lambda x, index, source, dim: _scatter(x, index, source, dim, True),
    "put_at": lambda x, index, source, dim, count: _put(x, index, source, dim, count, False),
    "put_add_at": lambda x, index, source, dim, count: _put(x, index, source, dim, count, True),
    "mask_counts": lambda x: np.array([0, np.count_nonzero(x)]),
    "mask_positions": lambda x, offsets, total: np.flatnonzero(x),
    "view": lambda x, shape: x.reshape(shape),
    "permute": lambda x, dims: np.transpose(x, dims),
    "transpose": _transpose,
    "expand": _expand,
    "squeeze": _squeeze,
    "unsqueeze": lambda x, dim: np.expand_dims(x, dim),
    "select": lambda x, dim, index: _index_along(x, dim, index),
    "slice": lambda x, dim, start, end, step: _index_along(x, dim, slice(start, end, step)),
    "narrow": lambda x, dim, start, length: np.take(x, np.arange(start, start + length), dim),
    "as_strided": _strided,
    "flip_view": lambda x, dims: np.flip(x, dims),
    "diagonal": lambda x, offset, dim1, dim2: np.diagonal(x, offset, dim1, dim2),
    "unfold": _unfold,
    "alias": lambda x: x,
    "index_view": _index,
    **CONVOLUTION_REFERENCES,
    "uniform_fill": _uniform_fill,
    "arange_fill": lambda x, start, step, dtype: _positions(x) * step + start,
    "linspace_fill": lambda x, start, end, step, last, dtype: start + (end - start) * _positions(x) / last,
    "normal_fill": lambda x, mean, std, seed, offset, dtype: mean + std * _normal(x.shape, seed, offset, dtype),
    "normal_around": _normal_around,
    "exponential_fill": lambda x, rate, seed, offset, dtype: (
        -np.log(1 - uniform_numbers(x.shape, seed, offset, dtype)) / rate
    ),
    "integer_fill": _random_integers,
    "narrow_integer_fill": _scaled_integers,
    "partner_fill": _partners,
    "wide_partner_fill": _wide_partners,
    "shuffle_order": _shuffle,
    "normalize_groups": _normalize_groups,
    "weighted_key": lambda weights, seed, offset, dtype: (
        weights / np.maximum(-np.log1p(-uniform_numbers(weights.shape, seed, offset, dtype)), 1e-30)
    ),
    "bernoulli_fill": lambda x, p, seed, offset, dtype: uniform_numbers(x.shape, seed, offset, dtype) < p,
    "bernoulli_draw": lambda x, seed, offset, dtype: uniform_numbers(x.shape, seed, offset, dtype) < x,
    "dropout_draw": _dropout,
}
