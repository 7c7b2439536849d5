"""Methods that are made of other methods: aliases and in-place forms. `install` sets them when all others are there."""

from __future__ import annotations

from .. import random
from ..runtime.tensor import Tensor
from .in_place import in_place_method, in_place_view

__all__ = ["install"]

_METHOD_ALIASES = {
    "absolute_": "abs_", "arccos_": "acos_", "arccosh_": "acosh_", "arcsin_": "asin_", "arcsinh_": "asinh_",
    "arctan_": "atan_", "arctanh_": "atanh_", "clip_": "clamp_", "divide_": "div_", "multiply_": "mul_",
    "negative_": "neg_", "ndimension": "dim", "sgn_": "sign_", "subtract_": "sub_", "arctan2_": "atan2_",
    "fix_": "trunc_", "greater_": "gt_", "greater_equal_": "ge_", "less_": "lt_", "less_equal_": "le_",
    "not_equal_": "ne_",
}  # fmt: skip
_RANDOM_METHODS = {"bernoulli": random.bernoulli, "multinomial": random.multinomial}
_VIEWS_IN_PLACE = ("as_strided", "squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims")
_COPIED_IN_PLACE = ("addmm", "addmv", "baddbmm", "deg2rad", "float_power", "logit", "nan_to_num", "rad2deg")
# Examples of in-place forms whose functions' examples have another shape or dtype than the first operand.
_EXAMPLES = {
    "addmm": ">>> wg.ones(1, 1).addmm_(wg.tensor([[1.0, 2.0]]), wg.tensor([[3.0], [4.0]]))\ntensor([[12.]])",
    "float_power": ">>> wg.tensor([2.0], dtype=wg.float64).float_power_(3)\ntensor([8.], dtype=weftgrad.float64)",
}


def install() -> None:
    """Add aliases and in-place forms of methods to `Tensor`."""
    for name, function in _RANDOM_METHODS.items():
        setattr(Tensor, name, function)
    for name in _VIEWS_IN_PLACE:
        setattr(Tensor, f"{name}_", in_place_view(name))
    for name, target in _METHOD_ALIASES.items():
        setattr(Tensor, name, getattr(Tensor, target))
    for name in _COPIED_IN_PLACE:
        setattr(Tensor, f"{name}_", in_place_method(getattr(Tensor, name), _EXAMPLES.get(name, "")))
