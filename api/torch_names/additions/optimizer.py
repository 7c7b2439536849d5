"""Names of `torch.optim.optimizer` that optimizers of other packages import from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeAlias, TypeVar

from ...autograd import no_grad
from ...optim._types import Params as ParamsT
from ...runtime.tensor import Tensor

__all__ = [
    "ParamsT", "_default_to_fused_or_foreach", "_get_capturable_supported_devices", "_get_value",
    "_params_t", "_use_grad_for_differentiable", "_view_as_real", "params_t",
]  # fmt: skip

params_t = _params_t = ParamsT
_Result = TypeVar("_Result")
_Step: TypeAlias = Callable[..., _Result]


def _use_grad_for_differentiable(func: _Step[_Result]) -> _Step[_Result]:
    """Return `func` so that it runs without gradients.

    PyTorch enables gradients in it for `differentiable=True`, which weftgrad does not support.
    """

    @wraps(func)
    def step(*args: object, **kwargs: object) -> _Result:
        with no_grad():
            return func(*args, **kwargs)

    return step


def _default_to_fused_or_foreach(
    params: Sequence[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return (False, False): use neither the fused step nor `torch._foreach_…`, but a loop over the parameters."""
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Return the device types on which an optimizer's step can be captured in a graph."""
    return ["cuda"]


def _get_value(x: Tensor | float) -> float:
    """Return the number in a 0-d tensor, or the number itself."""
    return x.item() if isinstance(x, Tensor) else x


def _view_as_real(params: Sequence[Tensor], *state_and_grads: object) -> None:
    """Do nothing: no parameter is complex."""
