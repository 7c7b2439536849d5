"""Record the timeline of a real training step with the profiler, and hooks on layers and parameters."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...execution.streams import memory_allocated, synchronize
from ...nn import Embedding, MultiheadAttention
from ...optim.optimizer import register_optimizer_step_post_hook
from ...profiler import profile, record_function
from ...profiler.events import HOST_DEVICES
from ...runtime import tracing
from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from .timeline import Gradient, Layer, Timeline

if TYPE_CHECKING:
    from ...nn import Module
    from ...optim.optimizer import Optimizer
    from ...profiler.events import FunctionEvent

__all__ = ["record_timeline"]

_LAYER, _GRADIENT, _STEP = "simulate: layer ", "simulate: gradient ", "simulate: step"


@dataclass
class _Watch:
    """What hooks notice in one step.

    Attributes:
        levels: For each call of a layer, its name and the bytes in use at its start.
        output_bytes: Bytes of each layer's last output.
        roles: The role of each layer under tensor parallelism.
        column_input: The input of the last matrix that is split by columns, until a matrix split by rows follows.
        final_level: Bytes in use when the first gradient arrived.
        parameter_names: Names of the model's parameters by their identity.
        optimizers: Optimizers that made a step.
    """

    levels: list[tuple[str, int]] = field(default_factory=list)
    output_bytes: dict[str, int] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    column_input: object = None
    final_level: int = 0
    parameter_names: dict[int, str] = field(default_factory=dict)
    optimizers: dict[int, Optimizer] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget what was noticed, except the optimizers."""
        self.levels.clear()
        self.final_level = 0
        self.roles.clear()
        self.column_input = None

    def annotate_gradient(self, leaf: Tensor) -> None:
        """Annotate the profile: a gradient of a parameter has arrived."""
        name = self.parameter_names.get(id(leaf))
        if name is not None:
            self.final_level = self.final_level or memory_allocated(leaf.device)
            with record_function(_GRADIENT + name):
                pass

    def assign_role(self, name: str, module: Module, layer_input: object) -> None:
        """Choose how tensor parallelism splits a layer: alternately by columns and by rows.

        This is the scheme of M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using
        model parallelism" (2019). Matrices with one input, such as those of queries, keys and values, are split alike.
        """
        if name in self.roles:
            return
        if isinstance(module, Embedding):
            self.roles[name] = "table"
        elif isinstance(module, MultiheadAttention):
            self.roles[name] = "block"
            self.column_input = None
        elif all(parameter.dim() < 2 for parameter in module.parameters(recurse=False)):
            self.roles[name] = "replicated"
        elif self.column_input is None or self.column_input is layer_input:
            self.roles[name] = "column"
            self.column_input = layer_input
        else:
            self.roles[name] = "row"
            self.column_input = None


def record_timeline(
    step: Callable[[], object], model: Module, *, name: str = "", warmup: int = 3, repeats: int = 5
) -> Timeline:
    """Record one training step: its layers, its gradients in the order they arrive, its update.

    The step is timed without the profiler, and its fastest run gives the duration. Further runs under the profiler,
    of which the fastest counts, give the share of each part. On a device that works asynchronously a part ends when the
    last kernel that it launched ends.

    Args:
        step: Runs one step: forward, backward, optimizer.
        model: The model that it trains. A layer is a module that owns parameters.
        name: Name of the timeline; "" takes the name of the model's class.
        warmup: Steps before the recording.
        repeats: Steps of each kind, of which the fastest counts.

    Returns:
        `Timeline`.

    Raises:
        ArgumentError: The model has no parameters, or the step computes no gradients or calls no layer of the model.

    Example:
        >>> from weftgrad.distributed.simulate import record_timeline
        >>> model = wg.nn.Sequential(wg.nn.Linear(4, 8), wg.nn.Tanh(), wg.nn.Linear(8, 1))
        >>> optimizer = wg.optim.SGD(model.parameters(), lr=0.1)
        >>> def step():
        ...     optimizer.zero_grad()
        ...     model(wg.ones(2, 4)).sum().backward()
        ...     optimizer.step()
        ...
        >>> timeline = record_timeline(step, model)
        >>> [gradient.name for gradient in timeline.gradients][-2:]
        ['0.weight', '0.bias']
    """
    parameters = dict(model.named_parameters())
    if not parameters or warmup < 0 or repeats < 1:
        raise ArgumentError(
            "record_timeline: the model needs parameters, warmup is 0 or more and repeats 1 or more, not "
            f"{len(parameters)} parameters, {warmup} and {repeats}"
        )
    device = next(iter(parameters.values())).device
    for _ in range(max(warmup, 1)):
        step()
    synchronize(device)
    step_seconds = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        step()
        synchronize(device)
        step_seconds = min(step_seconds, time.perf_counter() - begin)
    timelines = []
    with _hooks(model, str(device)) as watch:
        for _ in range(repeats):
            watch.clear()
            with profile() as prof:
                if tracing.current is not None:
                    tracing.current.on_gradient = watch.annotate_gradient
                with record_function(_STEP):
                    step()
                    synchronize(device)
            timelines.append(_timeline(prof.events(), watch, model, name or type(model).__name__, str(device)))
    fastest = min(timelines, key=lambda timeline: timeline.step_seconds)
    return fastest.with_step_seconds(step_seconds)


@contextmanager
def _hooks(model: Module, device: str) -> Iterator[_Watch]:
    """Annotate the profile at the start of each layer."""
    watch = _Watch(parameter_names={id(parameter): name for name, parameter in model.named_parameters()})

    def watch_layer(name: str, module: Module) -> None:
        def before(_module: object, args: tuple[object, ...]) -> None:
            watch.assign_role(name, module, args[0] if args else None)
            watch.levels.append((name, memory_allocated(device)))
            with record_function(_LAYER + name):
                pass

        def after(_module: object, _args: object, output: object) -> None:
            watch.output_bytes[name] = _tensor_bytes(output)

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))

    def watch_optimizer(optimizer: Optimizer, *_: object) -> None:
        watch.optimizers[id(optimizer)] = optimizer

    handles = [register_optimizer_step_post_hook(watch_optimizer)]
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            watch_layer(name, module)
    try:
        yield watch
    finally:
        for handle in handles:
            handle.remove()


def _tensor_bytes(value: object) -> int:
    """Return the bytes of the tensors in a nested output."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(_tensor_bytes, value.values()))
    return sum(map(_tensor_bytes, value)) if isinstance(value, (list, tuple)) else 0


def _timeline(events: Sequence[FunctionEvent], watch: _Watch, model: Module, name: str, device: str) -> Timeline:
    """Return the timeline of one profiled step. Times of events are in microseconds."""
    device_time = _device_clock(events, is_host=device in HOST_DEVICES)
    (step,) = (event.time_range for event in events if event.name == _STEP)
    backward = [event.time_range for event in events if event.category == "backward"]
    starts = [
        (e.name.removeprefix(_LAYER), device_time(e.time_range.start)) for e in events if e.name.startswith(_LAYER)
    ]
    arrival_of: dict[str, float] = {}
    for event in events:
        if event.name.startswith(_GRADIENT):  # of several, the last one completes the gradient
            parameter = event.name.removeprefix(_GRADIENT)
            arrival_of[parameter] = max(arrival_of.get(parameter, 0.0), device_time(event.time_range.start))
    arrivals = sorted(arrival_of.items(), key=lambda item: item[1])
    if not backward or not arrivals or not starts:
        raise ArgumentError(
            f"record_timeline: a step calls the model's layers and runs backward; this one had {len(starts)} calls of "
            f"layers and {len(arrivals)} gradients"
        )
    backward_begin = device_time(min(interval.start for interval in backward))
    backward_end = device_time(max(interval.end for interval in backward))
    layers = _layers(starts, device_time(step.start), backward_begin, watch, model)
    index_of = {layer.name: index for index, layer in enumerate(layers)}
    nbytes_of = {name: _tensor_bytes(parameter) for name, parameter in model.named_parameters()}
    gradients, previous = [], backward_begin
    for position, (parameter, arrival) in enumerate(arrivals):  # what follows the last one counts as its time
        end = backward_end if position == len(arrivals) - 1 else arrival
        layer_index = index_of[_owner(parameter, index_of)]
        gradients.append(Gradient(parameter, layer_index, nbytes_of[parameter], max(0.0, end - previous) / 1e6))
        previous = max(previous, end)
    state_bytes = sum(
        _tensor_bytes(state) for optimizer in watch.optimizers.values() for state in optimizer.state.values()
    )
    update_seconds = max(0.0, device_time(step.end) - backward_end) / 1e6
    return Timeline(name, device, tuple(layers), tuple(gradients), update_seconds, state_bytes)


def _layers(starts: Sequence[tuple[str, float]], begin: float, end: float, watch: _Watch, model: Module) -> list[Layer]:
    """Return the layers in the order of their first calls. A layer that is called again gets the sum of its calls.

    Args:
        starts: Name and start of each call, in microseconds.
        begin: Start of the step: what precedes the first layer counts as its time.
        end: End of the forward pass.
        watch: What hooks noticed.
        model: The model.
    """
    seconds: dict[str, float] = {}
    growth: dict[str, int] = {}
    boundaries = [begin, *(start for _, start in starts[1:]), end]
    levels = [*(level for _, level in watch.levels), watch.final_level]
    for position, (name, _) in enumerate(starts):
        duration = max(0.0, boundaries[position + 1] - boundaries[position]) / 1e6
        seconds[name] = seconds.get(name, 0.0) + duration
        growth[name] = growth.get(name, 0) + levels[position + 1] - levels[position]
    parameter_bytes = dict.fromkeys(seconds, 0)
    for parameter_name, parameter in model.named_parameters():
        owner = _owner(parameter_name, seconds)
        parameter_bytes[owner] += _tensor_bytes(parameter)
    return [
        Layer(name, seconds[name], watch.output_bytes.get(name, 0), max(0, growth[name]), parameter_bytes[name],
              watch.roles[name])
        for name in seconds
    ]  # fmt: skip


def _owner(parameter: str, layers: dict[str, int] | dict[str, float]) -> str:
    """Return the layer that owns a parameter: the innermost called module around it, or the last layer.

    A module may use parameters of a submodule without calling it, as `MultiheadAttention` does with `out_proj`.
    """
    module = parameter
    while module:
        module = module.rpartition(".")[0]
        if module in layers:
            return module
    return next(reversed(layers))


def _device_clock(events: Sequence[FunctionEvent], *, is_host: bool) -> Callable[[float], float]:
    """Return a function from a time of the host to the time when the device has done what was launched until then."""
    if is_host:
        return lambda host_time: host_time
    kernel_ends = {event.launch: event.time_range.end for event in events if event.is_kernel}
    launches = sorted(
        (event.time_range.start, kernel_ends[event.launch])
        for event in events
        if event.category == "launch" and event.launch in kernel_ends
    )
    times = [launch_time for launch_time, _ in launches]
    ends: list[float] = []
    for _, end in launches:
        ends.append(max(end, ends[-1] if ends else end))

    def device_time(host_time: float) -> float:
        count = bisect_left(times, host_time)
        return max(host_time, ends[count - 1]) if count else host_time

    return device_time
