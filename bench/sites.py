"""Where contenders run: this project's devices here; peers, one file each, in `peers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import weftgrad as wg

from ..runtime.backends.processor import last_level_cache
from .clocks import Clock, DeviceClock, WallClock
from .measure import PAUSE

__all__ = ["CACHES", "NotOffered", "OurSite", "Site", "is_gpu", "sites"]

Array = np.ndarray[Any, Any]
_FILL = 1 << 26  # elements, float32: what is written ahead of a sample, and more than a last-level cache holds
_MOST_TURNS = 512 << 20  # bytes
CACHES = 128 << 20  # bytes, twice the largest last-level cache of a GPU: operands of fewer are rotated


class NotOffered(AttributeError):
    """What a row calls is not part of a peer's library: the peer has no part in the row."""


class Site:
    """A library on a device. weftgrad and torch have the same names for all that cases use.

    name: `cuda:0`, `torch`, `numpy`. gpu: time is taken by the device. cache: bytes that operands should exceed.
    arrays: the library has NumPy's names and no gradients. modules: it has modules, optimizers, loaders as PyTorch's.
    checked: rows of a peer have to be right too before they have a speed. place: the device by the library's name.
    """

    name: str
    library: Any
    device: Any = None
    ours = False
    arrays = False
    modules = True
    checked = False
    gpu = False
    graphs = False
    cache = 0
    memory = 0

    def __init__(self, scale: int = 1):
        self.scale = scale
        # What operands on the host that do not fit into caches should exceed together, by taking turns.
        self.host_cache = min(last_level_cache(), _MOST_TURNS) if scale == 1 else 0
        self._clock: Clock | None = None

    @property
    def place(self) -> str:
        return "cpu" if self.device is None else str(self.device)

    def wait(self) -> None:
        """Wait until all work is done."""

    def clock(self, kind: str) -> Clock:
        """The clock for `device` time or `wall` time; host devices only have the latter."""
        if kind == "wall" or not self.gpu:
            return WallClock(self.wait, 0.0 if self.gpu else PAUSE)
        if self._clock is None:
            self._clock = self._device_clock()
        return self._clock

    def _device_clock(self) -> Clock:
        filler = self.library.zeros(max(1024, _FILL // self.scale**2), device=self.device)
        return DeviceClock(self._event, filler.zero_, self.wait)

    def _event(self) -> Any:
        raise NotImplementedError

    def release(self) -> None:
        """Give cached memory back."""

    def seed(self) -> None:
        """Start random numbers anew."""
        self.library.manual_seed(0)

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Any:
        """An array's values, in another dtype if one is named."""
        if not dtype:
            return self.library.tensor(array, device=self.device, requires_grad=grad)
        made = self.library.tensor(array, device=self.device).to(getattr(self.library, dtype))
        return made.requires_grad_() if grad else made

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
        """Normal random numbers, made on the device."""
        kind = getattr(self.library, dtype)
        return self.library.randn(*shape, dtype=kind, device=self.device, requires_grad=grad)

    def uniform(self, *shape: int) -> Any:
        """float32 random numbers of [0, 1)."""
        return self.library.rand(*shape, device=self.device)

    def integers(self, high: int, *shape: int) -> Any:
        """Random integers below `high`."""
        return self.library.randint(0, high, shape, device=self.device)

    def host(self, tensor: Any) -> Array:
        """The values as an array: float64, or integers."""
        values = tensor.detach()
        if "int" in str(values.dtype):
            return np.asarray(values.cpu().numpy())
        if str(values.dtype).rpartition(".")[2] in ("bfloat16", "float16"):
            values = values.float()
        return np.asarray(values.cpu().numpy(), np.float64)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """How exactly float32 matrices are multiplied in here."""
        before = self.library.get_float32_matmul_precision()
        self.library.set_float32_matmul_precision(name)
        try:
            yield
        finally:
            self.library.set_float32_matmul_precision(before)

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(library, *operands)` as a function of the operands: compiled ahead where the library does that."""
        return partial(function, self.library)

    def slopes(self, function: Callable[..., Any], operands: Sequence[Any], wanted: Sequence[int],
               seed: Callable[[tuple[int, ...]], Array]) -> Callable[[], Any]:  # fmt: skip
        """A call that goes back once more through `function(library, *operands)`, which is computed here and kept.

        It gives the gradients by the operands `wanted`, made with gradients, for one of the result that `seed` makes.
        """
        result = function(self.library, *operands)
        grads = self.like(seed(tuple(result.shape)), result)
        leaves = [operands[i] for i in wanted]
        grad = self.library.autograd.grad
        return lambda: grad(result, leaves, grads, retain_graph=True)

    def like(self, array: Array, other: Any) -> Any:
        """An array's values in the dtype of a tensor."""
        return self.tensor(array).to(other.dtype)

    def replayed(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """The replay of `step` as a CUDA graph, captured after it was run three times."""
        cuda = self.library.cuda
        chosen = cuda.Stream(device=self.device)
        chosen.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(chosen):
            for _ in range(3):
                step()
        cuda.current_stream(self.device).wait_stream(chosen)
        self.wait()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=chosen):
            step()
        return graph.replay  # type: ignore[no-any-return]


class OurSite(Site):
    """A device of this project."""

    library = wg
    ours = True

    def __init__(self, device: Any, scale: int = 1, label: str = ""):
        super().__init__(scale)
        self.device = wg.device(device)
        self.name = label or str(self.device)
        able = self.device.driver.capabilities
        self.gpu = self.device.type == "cuda" or is_gpu(self.device)
        self.graphs = self.device.type == "cuda"
        self.cache = CACHES if self.gpu and scale == 1 else 0
        self.memory = able.memory if self.gpu else 0

    def wait(self) -> None:
        self.device.driver.synchronize()

    def _event(self) -> Any:
        return wg.Event(enable_timing=True, device=self.device)

    def release(self) -> None:
        wg.empty_cache(self.device)


def is_gpu(device: Any) -> bool:
    """Whether a device of this project has the schedules of GPUs, and is one."""
    return device.type not in ("cpu", "interpreter") and device.driver.capabilities.style != "cpu"


def sites(
    devices: Sequence[str], scale: int = 1, peers: Sequence[str] | None = None, label: str = ""
) -> list[Site]:  # fmt: skip
    """The contenders: the devices, then the peers named, or all that are installed and have a place beside them.

    label: the first device's name in a report.
    """
    from .peers import beside

    own = [OurSite(name, scale, label if i == 0 else "") for i, name in enumerate(devices)]
    return [*own, *beside(own, scale, peers)]
