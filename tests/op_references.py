"""References for ops whose spec names none, in NumPy and from the papers, independent of the specs.

Each takes the operands' values as arrays, then the op's numbers, and computes in float64. This module also has
references for integers, where those of the specs do not apply, and PyTorch's recorded result dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp
from op_index import INDEX_REFERENCES
from op_losses import LOSS_REFERENCES
from op_references_kinds import KIND_REFERENCES
from op_references_norms import NORM_REFERENCES
from op_references_recurrent import RECURRENT_REFERENCES
from op_references_sort import SORT_REFERENCES
from op_references_special import SPECIAL_REFERENCES
from op_resample import RESAMPLE_REFERENCES
from op_shapes import SHAPE_REFERENCES

Array = Any

# Hendrycks and Gimpel 2016: x P(X <= x) for a normal X. Its approximation is stated there with tanh; as a logistic
# function it is x s(2u), which does not cancel for negative x.
_GELU = 2 * np.sqrt(2 / np.pi)
# Klambauer et al. 2017, appendix: the fixed point for mean 0 and variance 1.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _where_finite(x: Array, value: Array) -> Array:
    return np.where(np.isnan(x), x, value)


def _lerp(a: Array, b: Array, w: Array) -> Array:
    a, b, w = (np.asarray(v, np.longdouble) for v in (a, b, w))
    with np.errstate(all="ignore"):
        return np.asarray(np.where(abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w)), np.float64)


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    return np.where(x * beta > threshold, x, np.logaddexp(0, beta * x) / beta)


def _clamp(x: Array, low: Array, high: Array) -> Array:
    return _where_finite(x, np.minimum(np.maximum(x, low), high)).astype(np.result_type(x, low, high))


def _clamp_one(limit: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, bound: np.where(x != x, x, np.where(bound != bound, bound, limit(x, bound)))


def _truncated_divide(a: Array, b: Array) -> Array:
    if np.result_type(a, b).kind == "f":
        return np.trunc(np.true_divide(a, b))
    dividend, divisor = a.astype(object), np.where(b == 0, 1, b.astype(object))
    quotient = np.where(b == 0, 0, np.abs(dividend) // np.abs(divisor))
    quotient = np.where((a < 0) == (b < 0), quotient, -quotient)
    half = 1 << (8 * a.dtype.itemsize - 1) if a.dtype.kind == "i" else 0  # the smallest integer over -1 wraps to itself
    return ((quotient + half) % (1 << 8 * a.dtype.itemsize) - half).astype(a.dtype)


def _coded(position: Array, index: Array, size: int, number: int, limit: int, base: int) -> Array:
    """Return positions, and codes in place of those of indices out of range. Unsigned numbers wrap around."""
    low, high = (np.asarray(n).astype(index.dtype) for n in (-limit, limit - 1))
    clamped = np.minimum(np.maximum(index, low), high).astype(np.int64)
    code = (base - number * 2 * limit - clamped).astype(index.dtype)
    return np.where((index < -size) | (index >= size), code, position)


def _linear_index_pair(major: Array, minor: Array, rows: int, columns: int, limit: int, base: int) -> Array:
    row, column = np.where(major < 0, major + rows, major), np.where(minor < 0, minor + columns, minor)
    position = _coded(row * columns + column, minor, columns, 1, limit, base)
    return _coded(position, major, rows, 0, limit, base)


def _linear_index_next(major: Array, minor: Array, size: int, number: int, limit: int, base: int) -> Array:
    position = major * size + np.where(minor < 0, minor + size, minor)
    return np.where(major < 0, major, _coded(position, minor, size, number, limit, base))


def _layer_norm(x: Array, weight: Array | None, bias: Array | None, normalized_shape: Any, eps: float = 1e-5) -> Array:
    """Ba, Kiros and Hinton 2016, equations 3 and 4, with eps inside the root."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def _rms_norm(x: Array, weight: Array | None, normalized_shape: Any, eps: float = 1.1920928955078125e-07) -> Array:
    """Zhang and Sennrich 2019, equation 4."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    return x / np.sqrt(np.square(x).mean(axes, keepdims=True) + eps) * (1 if weight is None else weight)


def _select_target(x: Array, target: Array, dim: int) -> Array:
    inside = np.clip(target, 0, x.shape[dim] - 1)
    return np.take_along_axis(x, np.expand_dims(inside, dim), dim).squeeze(dim)


def _tap(position: Array, step: float, size: float, out_of_range: float) -> Array:
    tap = np.floor(position) + step
    return np.where((tap >= 0) & (tap < size), tap, out_of_range).astype(np.int64)


def _cross_entropy(
    x: Array, target: Array, dim: int = -1, ignore_index: float = -100, label_smoothing: float = 0.0
) -> Array:
    """Szegedy et al. 2016, section 7: the target distribution mixed with the uniform one."""
    logs = sp.log_softmax(x, axis=dim)
    loss = -(1 - label_smoothing) * _select_target(logs, target, dim) - label_smoothing * logs.mean(dim)
    return np.where(target == ignore_index, 0, loss)


def _huber(d: Array, delta: float) -> Array:
    """Huber 1964: half the square up to delta, then its tangent."""
    return np.where(np.abs(d) < delta, d * d / 2, delta * np.abs(d) - delta * delta / 2)


def _integer_power(a: Array, b: Array) -> Array:
    """Compute Python's power, wrapped; for negative exponents, 1 / a**-b truncated to an integer."""
    bits = 8 * a.dtype.itemsize

    def int_power(x: int, n: int) -> int:
        if n < 0:
            return {1: 1, -1: 1 if n % 2 == 0 else -1}.get(x, 0)
        power = pow(x, n, 1 << bits)
        return power - (1 << bits) if a.dtype.kind == "i" and power >> (bits - 1) else power

    pairs = zip(*(v.ravel().tolist() for v in np.broadcast_arrays(a, b)), strict=True)
    return np.array([int_power(x, n) for x, n in pairs], a.dtype).reshape(np.broadcast_shapes(a.shape, b.shape))


# Optimizer steps. The formulas of the papers apply to the gradient after sign and weight decay.


def _prepare_gradient(param: Array, grad: Array, weight_decay: float, sign: float) -> Array:
    return sign * grad + weight_decay * param


def _running_mean(old: Array, new: Array, decay: float, fresh: float) -> Array:
    """Update a running mean."""
    return decay * old + fresh * new


def _sgd(p: Array, g: Array, lr: float, weight_decay: float, sign: float) -> Array:
    return p - lr * _prepare_gradient(p, g, weight_decay, sign)


def _momentum(nesterov: bool) -> Callable[..., Any]:
    def step(p: Array, g: Array, v: Array, lr: float, momentum: float, fresh: float, decay: float, sign: float) -> Any:
        d = _prepare_gradient(p, g, decay, sign)
        v = _running_mean(v, d, momentum, fresh)
        return p - lr * (d + momentum * v if nesterov else v), v

    return step


def _adam(p: Array, g: Array, m: Array, v: Array, *numbers: float, highest: Array | None = None) -> Any:
    """Kingma and Ba 2015, algorithm 1; with `highest`, Reddi et al. 2018, algorithm 2."""
    size, beta1, rest1, beta2, rest2, correction, eps, weight_decay, decay, sign = numbers
    d = _prepare_gradient(p, g, weight_decay, sign)
    m, v = _running_mean(m, d, beta1, rest1), _running_mean(v, np.square(d), beta2, rest2)
    second_moment = v if highest is None else np.where(np.isnan(v) | np.isnan(highest), np.nan, np.maximum(highest, v))
    p = decay * p - size * m / (np.sqrt(second_moment) / correction + eps)
    return (p, m, v) if highest is None else (p, m, v, second_moment)


def _rmsprop(p: Array, g: Array, v: Array, lr: float, alpha: float, rest: float, *last: float) -> Any:
    eps, weight_decay, sign = last
    d = _prepare_gradient(p, g, weight_decay, sign)
    v = _running_mean(v, np.square(d), alpha, rest)
    return p - lr * d / (np.sqrt(v) + eps), v


def _rmsprop_family(centred: bool, momentum: bool) -> Callable[..., Any]:
    def step(p: Array, g: Array, v: Array, *states_and_numbers: Any) -> Any:
        states, numbers = states_and_numbers[: centred + momentum], states_and_numbers[centred + momentum :]
        lr, alpha, rest1, eps, decay, sign = numbers[:6]
        d = _prepare_gradient(p, g, decay, sign)
        v, states_out = _running_mean(v, np.square(d), alpha, rest1), []
        variance = v
        if centred:
            states_out.append(_running_mean(states[0], d, alpha, rest1))
            variance = v - np.square(states_out[0])
        update = d / (np.sqrt(variance) + eps)
        if momentum:
            update = numbers[6] * states[-1] + update
            states_out.append(update)
        return p - lr * update, v, *states_out

    return step


def _adamax(p: Array, g: Array, m: Array, norm: Array, size: float, beta1: float, rest: float, *last: float) -> Any:
    """Kingma and Ba 2015, algorithm 2, with eps as PyTorch has it."""
    beta2, eps, decay, sign = last
    d = _prepare_gradient(p, g, decay, sign)
    m, norm = _running_mean(m, d, beta1, rest), np.maximum(beta2 * norm, np.abs(d) + eps)
    return p - size * m / norm, m, norm


def _nadam(p: Array, g: Array, m: Array, v: Array, *numbers: float) -> Any:
    step_size, next_step_size, beta1, rest1, beta2, rest2, correction, eps, weight_decay, decay, sign = numbers
    d = _prepare_gradient(p, g, weight_decay, sign)
    m, v = _running_mean(m, d, beta1, rest1), _running_mean(v, np.square(d), beta2, rest2)
    denominator = np.sqrt(v) / correction + eps
    return decay * p - step_size * d / denominator - next_step_size * m / denominator, m, v


def _radam(p: Array, g: Array, m: Array, v: Array, size: float, rectification: float, *last: float) -> Any:
    beta1, rest1, beta2, rest2, eps, weight_decay, decay, sign = last
    d = _prepare_gradient(p, g, weight_decay, sign)
    m, v = _running_mean(m, d, beta1, rest1), _running_mean(v, np.square(d), beta2, rest2)
    return decay * p - size * m * (rectification / (np.sqrt(v) + eps) if rectification > 0 else 1.0), m, v


def _rprop(
    p: Array, g: Array, prev: Array, size: Array, shrink_factor: float, growth_factor: float, *last: float
) -> Any:
    min_size, max_size, sign = last
    g = sign * g
    sign_change = g * prev
    size = np.clip(
        size * (1 + (growth_factor - 1) * (sign_change > 0) + (shrink_factor - 1) * (sign_change < 0)),
        min_size,
        max_size,
    )
    g = np.where(sign_change < 0, 0, g)
    return p - ((g > 0) * size - (g < 0) * size), g, size


def _asgd(p: Array, g: Array, ax: Array, lr: float, decay: float, mu: float, weight_decay: float, sign: float) -> Any:
    p = decay * p - lr * _prepare_gradient(p, g, weight_decay, sign)
    return p, ax + mu * (p - ax)


def _adagrad(p: Array, g: Array, total: Array, lr: float, eps: float, weight_decay: float, sign: float) -> Any:
    d = _prepare_gradient(p, g, weight_decay, sign)
    total = total + np.square(d)
    return p - lr * d / (np.sqrt(total) + eps), total


def _adadelta(p: Array, g: Array, v: Array, u: Array, lr: float, rho: float, rest: float, *last: float) -> Any:
    """Zeiler 2012, algorithm 1."""
    eps, weight_decay, sign = last
    d = _prepare_gradient(p, g, weight_decay, sign)
    v = _running_mean(v, np.square(d), rho, rest)
    update = np.sqrt(u + eps) / np.sqrt(v + eps) * d
    return p - lr * update, v, _running_mean(u, np.square(update), rho, rest)


def _polygamma(x: Array, order: float) -> Array:
    """SciPy's polygamma, with its values at infinity and at poles replaced: there SciPy does not return."""
    inside = np.isfinite(x) & ~((x <= 0) & (x == np.floor(x)))
    limits = np.where(x == np.inf, 0.0, np.where(np.isfinite(x), (-1.0) ** (order + 1) * np.inf, np.nan))
    return np.where(inside, sp.polygamma(order, np.where(inside, x, 1)), limits)


def _product(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the product, the product of the nonzero elements, and the numbers of zeros and of NaNs and infinities."""
    zero = x == 0
    nonzero_product = np.prod(x, axis, keepdims=keepdims, where=~zero)
    counts = [mask.sum(axis, keepdims=keepdims) for mask in (zero, ~np.isfinite(x))]
    return np.prod(x, axis, keepdims=keepdims), nonzero_product, *counts


def _extreme(reduce: Callable[..., Array]) -> Callable[..., Any]:
    """Return a reference that computes the extreme, and how many elements equal it."""

    def reference(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        ties = (x == reduce(x, axis, keepdims=True)).sum(axis, keepdims=keepdims)
        return reduce(x, axis, keepdims=keepdims), ties

    return reference


def _unscaled(grad: Array, found_inf: Array, inverse: float) -> Any:
    grad, found_inf = np.broadcast_arrays(grad, found_inf)
    return grad * inverse, (~np.isfinite(grad)).astype(found_inf.dtype)


def _neighbour_bits(start: Array, end: Array, sign_bit: int, infinity: int) -> Array:
    """Step the numbers that bit patterns stand for: a pattern without its sign bit counts steps from zero."""
    start, end = np.broadcast_arrays(start, end)
    magnitude = ~np.asarray(sign_bit, start.dtype)
    a, b = (np.where(bits < 0, -(bits & magnitude), bits & magnitude) for bits in (start, end))
    stepped = a + np.where(b > a, 1, np.where(b < a, -1, 0)).astype(a.dtype)
    is_negative = (stepped < 0) | ((stepped == 0) & (a < 0))
    bits = np.where(is_negative, abs(stepped) | np.asarray(sign_bit, start.dtype), stepped)
    bits = np.where(a == b, end, bits)
    return np.where(abs(a) > infinity, start, np.where(abs(b) > infinity, end, bits))


REFERENCES: dict[str, Callable[..., Any]] = {
    "polygamma": _polygamma,
    "neighbour_bits": _neighbour_bits,
    "sgd_step": _sgd,
    "sgd_momentum_step": _momentum(False),
    "sgd_nesterov_step": _momentum(True),
    "adam_step": _adam,
    "amsgrad_step": lambda p, g, m, v, highest, *numbers: _adam(p, g, m, v, *numbers, highest=highest),
    "rmsprop_step": _rmsprop,
    "rmsprop_momentum_step": _rmsprop_family(False, True),
    "rmsprop_centred_step": _rmsprop_family(True, False),
    "rmsprop_centred_momentum_step": _rmsprop_family(True, True),
    "adagrad_step": _adagrad,
    "adadelta_step": _adadelta,
    "adamax_step": _adamax,
    "nadam_step": _nadam,
    "radam_step": _radam,
    "rprop_step": _rprop,
    "asgd_step": _asgd,
    "unscale_step": _unscaled,
    "scale_step": lambda x, factor: (x * factor, np.zeros_like(x * factor)),
    "clip_factor": lambda total, limit: np.where(np.isnan(total), total, np.minimum(limit / (total + 1e-6), 1)),
    "limit_step": lambda x, most: np.where(np.isnan(x), x, np.clip(x, -most, most)),
    "average_step": lambda a, now, weight: (1 - weight) * a + weight * now,
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),  # PyTorch's sign of NaN is 0
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, sp.gammaln(x)),  # as C and PyTorch; SciPy returns -inf at -inf
    "add_scaled": lambda a, b, alpha: a + alpha * b,
    "trunc_divide": _truncated_divide,
    "trunc_quotient": lambda a, b: np.trunc(a / b),
    "clamp_min": _clamp_one(np.maximum),
    "clamp_max": _clamp_one(np.minimum),
    "clamp_both": _clamp,
    "lerp": _lerp,
    "addcmul": lambda x, a, b, value=1: x + value * (a * b),
    "addcdiv": lambda x, a, b, value=1: x + value * (a / b),
    "frac": lambda x: np.copysign(np.where(np.isinf(x), np.nan, np.abs(np.modf(x)[0])), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "leaky_relu": lambda x, slope=0.01: np.maximum(x, 0) + slope * np.minimum(x, 0),
    "gelu_erf": lambda x: x * sp.ndtr(x),
    "gelu_tanh": lambda x: x * sp.expit(_GELU * (x + 0.044715 * x**3)),
    "silu": lambda x: x * sp.expit(x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softplus": _softplus,
    "elu": lambda x, alpha=1.0: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0)),
    "selu": lambda x: _SELU_SCALE * (np.maximum(x, 0) + _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    "hardtanh": lambda x, low=-1.0, high=1.0: np.clip(x, low, high),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "squared_error": lambda x, t: np.square(x - t),
    "absolute_error": lambda x, t: np.abs(x - t),
    "smooth_l1_error": lambda x, t, beta=1.0: _huber(x - t, beta) / beta,  # Girshick 2015, equation 3, at scale beta
    "huber_error": lambda x, t, delta=1.0: _huber(x - t, delta),
    "logits_error": lambda x, t: -(t * sp.log_expit(x) + (1 - t) * sp.log_expit(-x)),
    "weighted_logits_error": lambda x, t, w: -(w * t * sp.log_expit(x) + (1 - t) * sp.log_expit(-x)),
    "probability_error": lambda x, t: -(
        t * np.maximum(np.log(x), -100) + (1 - t) * np.maximum(np.log1p(-x), -100)
    ),
    "divergence": lambda x, t: sp.xlogy(t, t) - t * x,
    "log_divergence": lambda x, t: np.exp(t) * (t - x),
    "poisson_error": lambda x, t: np.exp(x) - t * x,
    "soft_margin_error": lambda x, t: np.logaddexp(0, -t * x),
    # Barron 2017, equation 2
    "celu": lambda x, alpha=1.0: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "softshrink": lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    "hardshrink": lambda x, lambd=0.5: np.where(np.abs(x) > lambd, x, np.where(np.isnan(x), x, 0)),
    "threshold": lambda x, threshold, value: np.where(x > threshold, x, np.where(np.isnan(x), x, value)),
    "prelu_slope": lambda x, w: np.where(x > 0, x, w * x),  # He et al. 2015, equation 1
    "masked_fill": lambda x, mask, value: np.where(mask, value, x),
    "grid_place": lambda at, scale, shift: (at + 1) * scale - shift,
    "grid_tap": _tap,
    "histogram_place": lambda x, first, last, bins: np.where(
        (x >= first) & (x <= last), np.floor(np.minimum((x - first) / ((last - first) / bins), bins - 1)), -1
    ),
    "linear_index_pair": _linear_index_pair,
    "linear_index_next": _linear_index_next,
    "linear_index": lambda major, minor, size: major * size + minor,
    "zero_like": lambda x: np.zeros(x.shape),
    "index_bounds": lambda x, axis=None, keepdims=False: (x.min(), x.max()),
    "copy": lambda x: x,
    "contiguous_copy": lambda x: x,
    "channels_last_copy": lambda x: x,
    "fill": lambda x, value: np.full(x.shape, value),
    "full_like_as": lambda x, value: np.full(x.shape, value),
    "absolute_sum": lambda x, axis=None, keepdims=False: np.sum(np.abs(x), axis, keepdims=keepdims),
    "largest_magnitude": lambda x, axis=None, keepdims=False: np.max(np.abs(x), axis, keepdims=keepdims),
    "sum_squares": lambda x, axis=None, keepdims=False: np.sum(x * x, axis, keepdims=keepdims),
    "prod": _product,
    "amax": _extreme(np.max),
    "amin": _extreme(np.min),
    "max_elements": _extreme(np.max),
    "min_elements": _extreme(np.min),
    "max_dim": lambda x, axis, keepdims=False: (
        np.max(x, axis, keepdims=keepdims), np.argmax(x, axis, keepdims=keepdims),
    ),
    "max_plane": lambda x, axis, keepdims=False: (
        np.max(x, axis, keepdims=keepdims), np.argmax(x, axis, keepdims=keepdims),
    ),
    "min_dim": lambda x, axis, keepdims=False: (
        np.min(x, axis, keepdims=keepdims), np.argmin(x, axis, keepdims=keepdims),
    ),
    "euclidean_norm": lambda x, axis=None, keepdims=False: np.sqrt(np.sum(np.square(x), axis, keepdims=keepdims)),
    "vm": lambda v, x: np.matmul(v, x),
    "bmv": lambda x, v: np.matmul(x, v),
    "linear_product": lambda x, w: np.matmul(x, w.T),
    "linear_bias": lambda x, w, bias: np.matmul(x, w.T) + bias,
    "addmm_relu": lambda c, a, b, beta, alpha: np.maximum(beta * c + alpha * np.matmul(a, b), 0),
    "addmm_gelu": lambda c, a, b, beta, alpha: (s := beta * c + alpha * np.matmul(a, b)) * sp.ndtr(s),
    **dict.fromkeys(
        ("addmm_product", "baddbmm_product", "addmv_product"),
        lambda c, a, b, beta, alpha: beta * c + alpha * np.matmul(a, b),
    ),
    "softmax": lambda x, dim=-1: sp.softmax(x, axis=dim),
    "log_softmax": lambda x, dim=-1: sp.log_softmax(x, axis=dim),
    "logsumexp_row": lambda x, dim=-1, keepdim=False: sp.logsumexp(x, axis=dim, keepdims=keepdim),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "normalize_l2": lambda x, dim=1, eps=1e-12: x / np.maximum(np.linalg.norm(x, axis=dim, keepdims=True), eps),
    "cross_entropy_row": _cross_entropy,
    **SPECIAL_REFERENCES,
    **INDEX_REFERENCES,
    **KIND_REFERENCES,
    **NORM_REFERENCES,
    **LOSS_REFERENCES,
    **RECURRENT_REFERENCES,
    **RESAMPLE_REFERENCES,
    **SHAPE_REFERENCES,
    **SORT_REFERENCES,
}  # fmt: skip

# For integers, where NumPy's function differs or refuses.
INTEGER_REFERENCES: dict[str, Callable[..., Array]] = {
    "pow": _integer_power,
    "sign": lambda x: x if x.dtype == bool else (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    "abs": lambda x: np.where(x < 0, -x, x),
    "neg": lambda x: (0 - x.astype(np.int64)).astype(x.dtype),
    "isnan": lambda x: np.zeros(x.shape, bool),
    "isinf": lambda x: np.zeros(x.shape, bool),
    "isfinite": lambda x: np.ones(x.shape, bool),
    "signbit": lambda x: x < 0,
    "relu": lambda x: np.where(x > 0, x, x.dtype.type(0)),
    "hardtanh": lambda x, low=-1.0, high=1.0: np.clip(x, int(low), int(high)),
}

# Result dtypes of PyTorch 2.9 for operands of one dtype, recorded with
#     for d in DTYPES: getattr(torch, op)(*[torch.ones(3).to(d)] * count).dtype
# One letter per dtype, in the order of LETTERS; `-`: it raises.
LETTERS = {
    "b": "bool", "u": "uint8", "1": "int8", "2": "int16", "4": "int32", "8": "int64", "h": "float16", "B": "bfloat16",
    "f": "float32", "d": "float64",
}  # fmt: skip
_RESULTS = {
    "bu1248hBfd": "add add_scaled mul sign maximum minimum fmax fmin clamp_min clamp_max where copy contiguous_copy "
    "channels_last_copy fill full_like_as",
    "-u1248hBfd": "sub floor_divide trunc_divide remainder fmod neg abs pow clamp_both addcmul floor ceil "
    "trunc round relu",
    "ffffffhBfd": "true_divide reciprocal copysign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin "
    "acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma atan2 xlogy sigmoid sinc",
    "8u1248hBfd": "square",
    "------hBfd": "hypot lerp addcdiv frac logaddexp logaddexp2 logsigmoid leaky_relu gelu_erf gelu_tanh silu mish "
    "softplus elu selu hardswish hardsigmoid trunc_quotient",
    "bbbbbbbbbb": "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite signbit",
    "bu1248----": "bitwise_and bitwise_or bitwise_xor bitwise_not",
    "-u1248----": "bitwise_left_shift bitwise_right_shift gcd lcm",
    "--1248hBfd": "hardtanh",
}
_RECORDED = {op: dict(zip(LETTERS, row, strict=True)) for row, ops in _RESULTS.items() for op in ops.split()}
# For ops that PyTorch does not have: integers are refused, preserved, or become float32.
_BY_CLASS = {
    "float": "------hBfd",
    "numeric": "-u1248hBfd",
    "all": "bu1248hBfd",
    "integer": "-u1248----",
    "integral": "bu1248----",
}


def results_of(op: Any) -> dict[str, str]:
    """Return the letter of an op's result dtype for the letter of each operand dtype."""
    row = "ffffffhBfd" if op.result == "float" else _BY_CLASS[op.dtypes]
    if op.result in ("int64", "int32"):
        row = "".join("-" if letter == "-" else "8" if op.result == "int64" else "4" for letter in row)
    return _RECORDED.get(op.name) or dict(zip(LETTERS, row, strict=True))


# torch.promote_types of every pair of dtypes: one row per dtype, in the order of LETTERS.
PROMOTE = dict(
    zip(
        LETTERS,
        [
            "bu1248hBfd",
            "uu2248hBfd",
            "121248hBfd",
            "222248hBfd",
            "444448hBfd",
            "888888hBfd",
            "hhhhhhhffd",
            "BBBBBBfBfd",
            "fffffffffd",
            "dddddddddd",
        ],
        strict=True,
    )
)
# torch.result_type of a tensor and a 0-d tensor of every dtype, and of a tensor and True, 1 and 1.0.
PROMOTE_SCALAR = {
    "b": ("bu1248hBfd", "b8f"), "u": ("uuuuuuhBfd", "uuf"), "1": ("111111hBfd", "11f"), "2": ("222222hBfd", "22f"),
    "4": ("444444hBfd", "44f"), "8": ("888888hBfd", "88f"), "h": ("hhhhhhhhhh", "hhh"), "B": ("BBBBBBBBBB", "BBB"),
    "f": ("ffffffffff", "fff"), "d": ("dddddddddd", "ddd"),
}  # fmt: skip
