"""JAX, on the GPU that is measured or on the host's cores; every row's function is compiled by `jax.jit`.

Its device runs behind the host, so `wait` blocks on the results that are not known to be done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..clocks import Clock, WallClock
from ..measure import PAUSE
from ..sites import NotOffered, OurSite, Site
from .tables import Names

__all__ = ["JaxSite", "site"]

_AHEAD = 8  # calls whose results are held until the device is done with them
Array = np.ndarray[Any, Any]


class JaxSite(Site):
    """jax on one device. Tensors are its arrays; gradients are functions made by `jax.vjp`."""

    name = "jax"
    modules = False
    checked = True

    def __init__(self, jax: Any, device: Any, scale: int = 1):
        super().__init__(scale)
        self.jax, self.device, self.gpu = jax, device, False  # by the host's clock on every device
        self.library = Names(_table(jax), "jax")
        self._pending: deque[Any] = deque(maxlen=_AHEAD)
        self._key: Any = None

    @property
    def place(self) -> str:
        return "cpu" if self.device.platform == "cpu" else f"cuda:{self.device.id}"

    def clock(self, kind: str) -> Clock:
        return WallClock(self.wait, PAUSE if self.device.platform == "cpu" else 0.0)

    def wait(self) -> None:
        while self._pending:
            self.jax.block_until_ready(self._pending.popleft())

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = self.jax.jit(lambda *operands: function(self.library, *operands))
        return self._kept(compiled)

    def _kept(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Calls whose results are waited for: at once for the oldest where many are under way."""

        def call(*operands: Any) -> Any:
            if len(self._pending) == _AHEAD:
                self.jax.block_until_ready(self._pending.popleft())
            result = compiled(*operands)
            self._pending.append(result)
            return result

        return call

    def slopes(self, function: Callable[..., Any], operands: Sequence[Any], wanted: Sequence[int],
               seed: Callable[[tuple[int, ...]], Array]) -> Callable[[], Any]:  # fmt: skip
        jax = self.jax

        def of_wanted(*some: Any) -> Any:
            given = list(operands)
            for i, value in zip(wanted, some, strict=True):
                given[i] = value
            return function(self.library, *given)

        # The forward pass is computed here; what it saved for the way back is an argument of the compiled function.
        result, pull = jax.vjp(jax.jit(of_wanted), *[operands[i] for i in wanted])
        grads = self.like(seed(tuple(result.shape)), result)
        back = self._kept(jax.jit(lambda pulled, g: pulled(g)))
        return lambda: back(pull, grads)

    def like(self, array: Array, other: Any) -> Any:
        return self.tensor(array).astype(other.dtype)

    def seed(self) -> None:
        self._key = self.jax.random.key(0, impl="rbg")

    def _next(self) -> Any:
        self._key, key = self.jax.random.split(self._key)
        return key

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Any:
        if array.dtype == np.int64 and array.size and np.abs(array).max() > np.iinfo(np.int32).max:
            raise NotOffered("jax: integers of 64 bits are switched off unless a program asks for them")
        if array.dtype == np.int64:
            array = array.astype(np.int32)
        made = self.jax.device_put(array, self.device)
        return made.astype(dtype) if dtype else made

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
        return self.jax.random.normal(self._next(), shape, dtype)

    def uniform(self, *shape: int) -> Any:
        return self.jax.random.uniform(self._next(), shape)

    def integers(self, high: int, *shape: int) -> Any:
        return self.jax.random.randint(self._next(), shape, 0, high)

    def host(self, tensor: Any) -> Array:
        array = np.asarray(tensor)
        return array if array.dtype.kind in "iub" else array.astype(np.float64)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        with self.jax.default_matmul_precision({"highest": "highest", "high": "tensorfloat32"}.get(name, "default")):
            yield


def _table(jax: Any) -> dict[str, Callable[..., Any]]:
    """What rows call, by PyTorch's names and in its order of arguments."""
    np_, nn, lax = jax.numpy, jax.nn, jax.lax

    def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        axes = tuple(range(-len(shape), 0))
        middle = x.mean(axes, keepdims=True)
        y = (x - middle) * lax.rsqrt(x.var(axes, keepdims=True) + eps)
        y = y if weight is None else y * weight
        return y if bias is None else y + bias

    def convolution(rank: int) -> Callable[..., Any]:
        def conv(x: Any, w: Any, bias: Any = None, stride: int = 1, padding: int = 0, dilation: int = 1,
                 groups: int = 1) -> Any:  # fmt: skip
            return lax.conv_general_dilated(
                x, w, (stride,) * rank, [(padding, padding)] * rank, rhs_dilation=(dilation,) * rank,
                feature_group_count=groups,
            )  # fmt: skip

        return conv

    def windows(x: Any, size: int, stride: int | None, padding: int, start: Any, combine: Any) -> Any:
        step = stride or size
        return lax.reduce_window(x, start, combine, (1, 1, size, size), (1, 1, step, step),
                                 ((0, 0), (0, 0), (padding, padding), (padding, padding)))  # fmt: skip

    def attention(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
        turned = (np_.swapaxes(t, 1, 2) for t in (q, k, v))  # batch, rows, heads, width
        return np_.swapaxes(nn.dot_product_attention(*turned, is_causal=is_causal), 1, 2)

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


def site(own: Sequence[OurSite], scale: int) -> Site | None:
    """On the GPU of the first device that is CUDA's, where JAX has it; else on the host's cores beside those."""
    import jax

    for each in own:
        if each.gpu:
            found = [d for d in jax.devices() if d.platform == "gpu" and d.id == (each.device.index or 0)]
            if found:
                return JaxSite(jax, found[0], scale)
    if own and own[0].gpu:
        return None  # a GPU beside which JAX has the host alone
    return JaxSite(jax, jax.devices("cpu")[0], scale)
