"""tinygrad on CUDA, or on the CPU if none of our devices is on CUDA. `TinyJit` compiles the function of every row.

Its tensors are lazy, so a call ends with `realize`. Its methods have PyTorch's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from ..clocks import Clock, WallClock
from ..measure import PAUSE
from ..sites import OurSite, Site
from .function_namespace import FunctionNamespace, PeerFunction

if TYPE_CHECKING:
    import tinygrad

    from ..library_types import Grads, Operation, Tensor

__all__ = ["TinygradSite", "site"]


class TinygradSite(Site):
    """tinygrad on one of its devices, such as `CPU`, `CL` or `CUDA`."""

    name = "tinygrad"
    device: str
    modules = False
    checked = True

    def __init__(self, tinygrad: ModuleType, device: str, scale: int = 1):
        super().__init__(scale)
        self.tiny, self.device = tinygrad, device
        self.library = FunctionNamespace(_pytorch_names(tinygrad.Tensor), "tinygrad")

    @property
    def device_name(self) -> str:
        return "cpu" if self.device == "CPU" else self.device.lower()

    def clock(self, kind: str) -> Clock:
        return WallClock(self.wait, PAUSE)

    def wait(self) -> None:
        self.tiny.Device[self.device].synchronize()

    def ready(self, function: Operation) -> Operation:
        def call(*operands: Tensor) -> Tensor | tuple[Tensor, ...]:
            return self._realize(function(self.library, *operands))

        compiled: Operation = self.tiny.TinyJit(call)
        return compiled

    def _realize(self, result: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        realize: Callable[[Tensor], Tensor] = self.tiny.Tensor.realize
        return tuple(map(realize, result)) if isinstance(result, tuple | list) else realize(result)

    def backward_call(self, function: Operation, operands: Sequence[Tensor], grad_indices: Sequence[int],
               seed: Callable[[tuple[int, ...]], Array]) -> Grads:  # fmt: skip
        """Run forward and backward together: tinygrad's lazy graph does not keep a computed forward pass."""
        shape = tuple(function(self.library, *operands).shape)
        grads = self.tensor(seed(shape))

        def gradients(g: Tensor, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
            result = function(self.library, *inputs)
            differentiated = [inputs[i] for i in grad_indices]
            return self._realize(tuple(self.tiny.Tensor.gradient(result, *differentiated, gradient=g)))

        compiled = self.tiny.TinyJit(gradients)
        return lambda: compiled(grads, *operands)

    def like(self, array: Array, tensor: Tensor) -> Tensor:
        values: Tensor = self.tiny.Tensor.cast(self.tensor(array), tensor.dtype).realize()
        return values

    def seed(self) -> None:
        self.tiny.Tensor.manual_seed(0)

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Tensor:
        tensor = self.tiny.Tensor(np.ascontiguousarray(array), device=self.device)
        return (tensor.cast(dtype) if dtype else tensor).contiguous().realize()

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Tensor:
        return self.tiny.Tensor.randn(*shape, device=self.device).cast(dtype).contiguous().realize()

    def uniform(self, *shape: int) -> Tensor:
        return self.tiny.Tensor.rand(*shape, device=self.device).realize()

    def integers(self, high: int, *shape: int) -> Tensor:
        return self.tiny.Tensor.randint(*shape, high=high, device=self.device).realize()

    def host(self, tensor: Tensor) -> Array:
        if tensor.dtype in (self.tiny.dtypes.bfloat16, self.tiny.dtypes.half):
            tensor = self.tiny.Tensor.float(tensor)
        array = np.asarray(tensor.numpy())
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        yield


def _pytorch_names(tensor: type[tinygrad.Tensor]) -> dict[str, PeerFunction]:
    """Return the functions that rows call, by PyTorch's names and with its argument order."""

    def conv(
        x: tinygrad.Tensor, w: tinygrad.Tensor, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> tinygrad.Tensor:
        return x.conv2d(w, groups=groups, stride=stride, padding=padding)

    same_signature = (
        "exp", "tanh", "sigmoid", "sqrt", "log", "sin", "gather", "sort", "relu", "matmul", "add", "sub", "mul",
    )  # fmt: skip
    table: dict[str, PeerFunction] = {name: getattr(tensor, name) for name in same_signature}
    return table | {
        "sum": lambda x, dim=None: x.sum(dim), "mean": lambda x, dim=None: x.mean(dim), "mm": tensor.matmul,
        "bmm": tensor.matmul, "softmax": lambda x, dim=-1: x.softmax(dim),
        "log_softmax": lambda x, dim=-1: x.log_softmax(dim), "cumsum": lambda x, dim: x.cumsum(dim),
        "topk": lambda x, k, dim=-1: x.topk(k, dim),
        "cat": lambda tensors, dim=0: tensors[0].cat(*tensors[1:], dim=dim),
        "roll": tensor.roll, "flip": tensor.flip, "tril": tensor.tril, "einsum": tensor.einsum,
        "nn.functional.gelu": lambda x: x * 0.5 * (1 + (x * 0.5**0.5).erf()),
        "nn.functional.relu": tensor.relu, "nn.functional.silu": tensor.silu,
        "nn.functional.layer_norm": lambda x, shape, w=None, b=None: (
            y := x.layernorm(tuple(range(-len(shape), 0))), y if w is None else y * w + b)[1],
        "nn.functional.conv1d": conv, "nn.functional.conv2d": conv, "nn.functional.conv3d": conv,
        "nn.functional.scaled_dot_product_attention": lambda q, k, v, is_causal=False: (
            q.scaled_dot_product_attention(k, v, is_causal=is_causal)),
        "nn.functional.max_pool2d": lambda x, n, s=None, p=0: x.max_pool2d((n, n), s, padding=p),
        "nn.functional.avg_pool2d": lambda x, n, s=None, p=0: x.avg_pool2d((n, n), s, padding=p),
    }  # fmt: skip


def site(our_sites: Sequence[OurSite], scale: int) -> Site | None:
    """Return a site on CUDA if one of our devices is, else on the CPU; None if our first device is another GPU."""
    import tinygrad
    from tinygrad import Device

    device = "CUDA" if any(our_site.device.type == "cuda" for our_site in our_sites) else "CPU"
    if device == "CPU" and our_sites and our_sites[0].gpu:
        return None
    Device[device]  # opens the device: raises an error if a compiler is missing
    return TinygradSite(tinygrad, device, scale)
