"""JAX on the measured GPU or on the CPU; every row's function is compiled by `jax.jit`.

JAX dispatches asynchronously, so `wait` blocks on all results that may still be pending.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...runtime.dtypes import Array
from ..clocks import Clock, WallClock
from ..measure import PAUSE
from ..sites import NotOffered, OurSite, Site
from .function_namespace import FunctionNamespace, PeerFunction

if TYPE_CHECKING:
    from jax import Array as JaxArray
    from jax import Device as JaxDevice

    from ..library_types import Grads, Operation, Tensor

__all__ = ["JaxSite", "site"]

T = TypeVar("T")
_MAX_PENDING = 8  # calls in flight; the next call first waits for the oldest


class JaxSite(Site):
    """jax on one device. Tensors are its arrays; gradients are functions from `jax.vjp`."""

    name = "jax"
    device: JaxDevice
    modules = False
    checked = True

    def __init__(self, jax: ModuleType, device: JaxDevice, scale: int = 1):
        super().__init__(scale)
        self.jax, self.device, self.gpu = jax, device, False  # False: timed by the host's clock on every device
        self.library = FunctionNamespace(_pytorch_names(jax), "jax")
        self._pending: deque[object] = deque(maxlen=_MAX_PENDING)
        self._key: JaxArray | None = None

    @property
    def device_name(self) -> str:
        return "cpu" if self.device.platform == "cpu" else f"cuda:{self.device.id}"

    def clock(self, kind: str) -> Clock:
        return WallClock(self.wait, PAUSE if self.device.platform == "cpu" else 0.0)

    def wait(self) -> None:
        while self._pending:
            self.jax.block_until_ready(self._pending.popleft())

    def ready(self, function: Operation) -> Operation:
        compiled = self.jax.jit(lambda *operands: function(self.library, *operands))
        return self._track_results(compiled)

    def _track_results(self, compiled: Callable[..., T]) -> Callable[..., T]:
        """Wrap a function so that its results are recorded as pending; with too many, wait for the oldest first."""

        def call(*operands: Tensor) -> T:
            if len(self._pending) == _MAX_PENDING:
                self.jax.block_until_ready(self._pending.popleft())
            result = compiled(*operands)
            self._pending.append(result)
            return result

        return call

    def backward_call(self, function: Operation, operands: Sequence[Tensor], grad_indices: Sequence[int],
               seed: Callable[[tuple[int, ...]], Array]) -> Grads:  # fmt: skip
        jax = self.jax

        def of_differentiated(*differentiated: Tensor) -> Tensor:
            all_operands = list(operands)
            for i, value in zip(grad_indices, differentiated, strict=True):
                all_operands[i] = value
            return function(self.library, *all_operands)

        # The forward pass runs here. Its residuals are arguments of the compiled backward function.
        result, vjp_function = jax.vjp(jax.jit(of_differentiated), *[operands[i] for i in grad_indices])
        grads = self.like(seed(tuple(result.shape)), result)
        back = self._track_results(jax.jit(lambda vjp, g: vjp(g)))
        return lambda: back(vjp_function, grads)

    def like(self, array: Array, tensor: Tensor) -> Tensor:
        values: Tensor = self.jax.numpy.asarray(self.tensor(array), tensor.dtype)
        return values

    def seed(self) -> None:
        self._key = self.jax.random.key(0, impl="rbg")

    def _next_key(self) -> JaxArray:
        self._key, key = self.jax.random.split(self._key)
        return key

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Tensor:
        if array.dtype == np.int64 and array.size and np.abs(array).max() > np.iinfo(np.int32).max:
            raise NotOffered("jax: integers of 64 bits are switched off unless a program asks for them")
        if array.dtype == np.int64:
            array = array.astype(np.int32)
        tensor = self.jax.device_put(array, self.device)
        return tensor.astype(dtype) if dtype else tensor

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Tensor:
        return self.jax.random.normal(self._next_key(), shape, dtype)

    def uniform(self, *shape: int) -> Tensor:
        return self.jax.random.uniform(self._next_key(), shape)

    def integers(self, high: int, *shape: int) -> Tensor:
        return self.jax.random.randint(self._next_key(), shape, 0, high)

    def host(self, tensor: Tensor) -> Array:
        array = np.asarray(tensor)
        return array if array.dtype.kind in "iub" else array.astype(np.float64)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        with self.jax.default_matmul_precision({"highest": "highest", "high": "tensorfloat32"}.get(name, "default")):
            yield


def _pytorch_names(jax: ModuleType) -> dict[str, PeerFunction]:
    """Return the functions that rows call, by PyTorch's names and with its argument order."""
    np_, nn, lax = jax.numpy, jax.nn, jax.lax

    def layer_norm(x: JaxArray, shape: Sequence[int], weight: JaxArray | None = None, bias: JaxArray | None = None,
                   eps: float = 1e-5) -> JaxArray:  # fmt: skip
        axes = tuple(range(-len(shape), 0))
        mean = x.mean(axes, keepdims=True)
        y = (x - mean) * lax.rsqrt(x.var(axes, keepdims=True) + eps)
        y = y if weight is None else y * weight
        return y if bias is None else y + bias

    def convolution(rank: int) -> PeerFunction:
        def conv(x: JaxArray, w: JaxArray, bias: None = None, stride: int = 1, padding: int = 0, dilation: int = 1,
                 groups: int = 1) -> JaxArray:  # fmt: skip
            return lax.conv_general_dilated(
                x, w, (stride,) * rank, [(padding, padding)] * rank, rhs_dilation=(dilation,) * rank,
                feature_group_count=groups,
            )  # fmt: skip

        return conv

    def windows(x: JaxArray, size: int, stride: int | None, padding: int, start: float,
                combine: Callable[[JaxArray, JaxArray], JaxArray]) -> JaxArray:  # fmt: skip
        step = stride or size
        return lax.reduce_window(x, start, combine, (1, 1, size, size), (1, 1, step, step),
                                 ((0, 0), (0, 0), (padding, padding), (padding, padding)))  # fmt: skip

    def attention(q: JaxArray, k: JaxArray, v: JaxArray, is_causal: bool = False) -> JaxArray:
        transposed = (np_.swapaxes(t, 1, 2) for t in (q, k, v))  # batch, rows, heads, width
        return np_.swapaxes(nn.dot_product_attention(*transposed, is_causal=is_causal), 1, 2)

    return {
        "exp": np_.exp, "tanh": np_.tanh, "sigmoid": nn.sigmoid, "add": np_.add, "sub": np_.subtract,
        "mul": np_.multiply, "sqrt": np_.sqrt, "log": np_.log, "sin": np_.sin, "matmul": np_.matmul, "mm": np_.matmul,
        "bmm": np_.matmul, "relu": nn.relu,
        "sum": lambda x, dim=None: np_.sum(x, dim), "mean": lambda x, dim=None: np_.mean(x, dim),
        "softmax": lambda x, dim=-1: nn.softmax(x, dim), "log_softmax": lambda x, dim=-1: nn.log_softmax(x, dim),
        "gather": lambda x, dim, i: np_.take_along_axis(x, i, dim), "cumsum": lambda x, dim: np_.cumsum(x, dim),
        "logcumsumexp": lambda x, dim: lax.cumlogsumexp(x, dim),
        "cummax": lambda x, dim: (lax.cummax(x, dim),), "sort": lambda x, dim=-1: (np_.sort(x, dim),),
        "topk": lambda x, k, dim=-1: tuple(np_.moveaxis(part, -1, dim) for part in
                                           lax.top_k(np_.moveaxis(x, dim, -1), k)),
        "cat": lambda tensors, dim=0: np_.concatenate(tensors, dim),
        "roll": np_.roll, "flip": np_.flip, "tril": np_.tril, "einsum": np_.einsum,
        "nn.functional.gelu": lambda x: nn.gelu(x, approximate=False), "nn.functional.relu": nn.relu,
        "nn.functional.silu": nn.silu, "nn.functional.softplus": nn.softplus, "nn.functional.layer_norm": layer_norm,
        "nn.functional.conv1d": convolution(1), "nn.functional.conv2d": convolution(2),
        "nn.functional.conv3d": convolution(3), "nn.functional.scaled_dot_product_attention": attention,
        "nn.functional.embedding": lambda i, w: np_.take(w, i, 0),
        "nn.functional.max_pool2d": lambda x, n, s=None, p=0: windows(x, n, s, p, -np_.inf, lax.max),
        "nn.functional.avg_pool2d": lambda x, n, s=None, p=0: windows(x, n, s, p, 0.0, lax.add) / n**2,
    }  # fmt: skip


def site(our_sites: Sequence[OurSite], scale: int) -> Site | None:
    """Return a site on the measured GPU if JAX supports it; on the CPU if our first device is a CPU; else None."""
    # By default JAX takes three quarters of a GPU's memory at once, and the other contenders' rows fail.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    for our_site in our_sites:
        if our_site.gpu:
            gpus = [d for d in jax.devices() if d.platform == "gpu" and d.id == (our_site.device.index or 0)]
            if gpus:
                return JaxSite(jax, gpus[0], scale)
    if our_sites and our_sites[0].gpu:
        return None  # JAX has only the CPU here, which is no fair peer for a GPU
    return JaxSite(jax, jax.devices("cpu")[0], scale)
