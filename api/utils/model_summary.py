"""A table of a model's layers: shapes, parameters, memory and multiplications.

The arguments are those of `torchinfo.summary`, which PyTorch's users know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ..autograd.grad_mode import no_grad
from ..creation.factories import zeros
from ..nn._hook_tables import global_forward, global_forward_pre
from ..nn.module import Module
from ..random.factories import rand
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, format_bytes
from ..runtime.modes import Mode
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor

if TYPE_CHECKING:
    from ..runtime.call_types import CallResult, Statics

__all__ = ["COLUMNS", "LayerInfo", "ModelStatistics", "summary"]

COLUMNS = {
    "input_size": "Input Shape", "output_size": "Output Shape", "num_params": "Param #", "trainable": "Trainable",
    "kernel_size": "Kernel Shape", "memory": "Memory", "mult_adds": "Mult-Adds",
}  # fmt: skip
"""Titles of the columns by name."""

Shapes = list[tuple[int, ...]]
_Result = TypeVar("_Result")


@dataclass(slots=True)
class LayerInfo:
    """One call of a module.

    Attributes:
        module: The module.
        name: Its name in the module that has it; empty for the model.
        depth: Number of modules that it is in.
        index: Number of the call among those of its depth.
        num_params: Parameters of the module and all in it; 0 if an earlier call of the module has counted them.
        trainable_params: Those of them that require a gradient.
        param_bytes: Their bytes, and those of buffers.
        is_recursive: Whether an earlier call has counted the module.
        input_shapes: Shapes of the positional tensor arguments.
        output_shapes: Shapes of the output.
        output_bytes: Bytes of the output, if the module has no submodules that were called.
        mult_adds: Multiplications of products and convolutions, in the module and all in it.
        is_leaf: Whether no submodule was called.
    """

    module: Module
    name: str
    depth: int
    index: int
    num_params: int
    trainable_params: int
    param_bytes: int
    is_recursive: bool
    input_shapes: Shapes
    output_shapes: Shapes = field(default_factory=list)
    output_bytes: int = 0
    mult_adds: int = 0
    is_leaf: bool = True

    @property
    def class_name(self) -> str:
        return type(self.module).__name__


class ModelStatistics:
    """What `summary` returns. As text, it is the table.

    Args:
        layers: The calls of modules, in order.
        model: The model.
        input_bytes: Bytes of the arguments.
        column_names: Columns of the table.
        column_width: Width of a column.
        max_depth: Depth of the layers that the table shows.

    Attributes:
        summary_list: The calls of modules, in order: a list of `LayerInfo`.
        total_params: Number of parameters.
        trainable_params: Number of parameters that require a gradient.
        total_mult_adds: Multiplications of products and convolutions.
        total_input: Bytes of the arguments.
        total_output_bytes: Bytes of the outputs of all layers without sublayers, which a training step holds.
        total_param_bytes: Bytes of parameters and buffers.

    Example:
        >>> wg.utils.summary(wg.nn.Linear(3, 2), (4, 3), verbose=0).total_params
        8
    """

    def __init__(
        self, layers: Sequence[LayerInfo], model: Module, input_bytes: int, column_names: Sequence[str],
        column_width: int, max_depth: int,
    ):  # fmt: skip
        self.summary_list = list(layers)
        parameters = list(model.parameters())
        self.total_params = sum(p.meta.numel for p in parameters)
        self.trainable_params = sum(p.meta.numel for p in parameters if p.requires_grad)
        self.total_param_bytes = sum(t.meta.nbytes for t in [*parameters, *model.buffers()])
        self.total_mult_adds = layers[0].mult_adds if layers else 0
        self.total_input = input_bytes
        self.total_output_bytes = sum(layer.output_bytes for layer in layers)
        self._column_names, self._column_width, self._max_depth = list(column_names), column_width, max_depth

    def __str__(self) -> str:
        layers = [layer for layer in self.summary_list if layer.depth <= self._max_depth]
        names = [_layer_text(layer) for layer in layers]
        first_width = max(map(len, [*names, "Layer (type:depth-idx)"])) + 2
        rows = [["Layer (type:depth-idx)", *(COLUMNS[column] for column in self._column_names)]]
        for layer, name in zip(layers, names, strict=True):
            rows.append([name, *(_cell(layer, column) for column in self._column_names)])
        widths = [first_width]
        widths += [max(self._column_width, *(len(row[i]) + 2 for row in rows)) for i in range(1, len(rows[0]))]
        line = "=" * sum(widths)
        body = ["".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([line, body[0], line, *body[1:], line, *self._totals(), line])

    __repr__ = __str__

    def _totals(self) -> list[str]:
        total = self.total_input + self.total_output_bytes + self.total_param_bytes
        return [
            f"Total params: {self.total_params:,}",
            f"Trainable params: {self.trainable_params:,}",
            f"Non-trainable params: {self.total_params - self.trainable_params:,}",
            f"Total mult-adds: {self.total_mult_adds:,}",
            f"Input: {format_bytes(self.total_input)}; outputs of layers: {format_bytes(self.total_output_bytes)}; "
            f"parameters and buffers: {format_bytes(self.total_param_bytes)}; together: {format_bytes(total)}",
        ]


def summary(
    model: Module,
    input_size: Sequence[int] | Sequence[Sequence[int]] | None = None,
    input_data: Any = None,
    batch_dim: int | None = None,
    col_names: Sequence[str] = ("output_size", "num_params", "memory"),
    col_width: int = 20,
    depth: int = 3,
    device: DeviceLike | None = None,
    dtypes: Sequence[DTypeLike] | None = None,
    mode: str = "eval",
    verbose: int = 1,
    **kwargs: Any,
) -> ModelStatistics:
    """Run a model once, and return a table of its layers.

    A model on the device `meta` needs no memory and no time.

    Args:
        model: The model.
        input_size: Shape of the argument, or the shape of each. Floating arguments are random, others 0.
        input_data: Arguments to use instead: a tensor, a tuple or list of arguments, or a dict of keyword arguments.
        batch_dim: Insert a dimension of size 1 there into each shape.
        col_names: Columns: of `input_size`, `output_size`, `num_params`, `memory` (of parameters and output),
            `mult_adds`, `kernel_size` and `trainable`.
        col_width: Width of a column at least.
        depth: Depth of the layers that the table shows.
        device: Device of the arguments; None for that of the parameters.
        dtypes: Dtype of each argument; None for the default dtype.
        mode: `eval`, `train`, or `same` for the model's own mode.
        verbose: 0 prints nothing, otherwise the table is printed.
        kwargs: Further keyword arguments of the model.

    Returns:
        `ModelStatistics`.

    Raises:
        ArgumentError: An argument is wrong, or there is neither a shape nor data.

    Example:
        >>> model = wg.nn.Sequential(wg.nn.Linear(3, 8), wg.nn.ReLU(), wg.nn.Linear(8, 2))
        >>> statistics = wg.utils.summary(model, (16, 3), verbose=0)
        >>> [(layer.class_name, layer.output_shapes, layer.num_params) for layer in statistics.summary_list[1:]]
        [('Linear', [(16, 8)], 32), ('ReLU', [(16, 8)], 0), ('Linear', [(16, 2)], 18)]
    """
    unknown = [name for name in col_names if name not in COLUMNS]
    if unknown:
        raise ArgumentError(f"summary: col_names are of {', '.join(COLUMNS)}, not {', '.join(map(repr, unknown))}")
    if mode not in ("eval", "train", "same"):
        raise ArgumentError(f"summary: mode is 'eval', 'train' or 'same', not {mode!r}")
    args, call_kwargs = _arguments(model, input_size, input_data, batch_dim, device, dtypes)
    recorder = _Recorder(model)
    with _in_mode(model, mode), no_grad(), recorder:
        model(*args, **{**call_kwargs, **kwargs})
    input_bytes = sum(tensor.meta.nbytes for tensor in _tensors((args, call_kwargs, kwargs)))
    statistics = ModelStatistics(recorder.layers, model, input_bytes, col_names, col_width, depth)
    if verbose:
        print(statistics)
    return statistics


# --- Running ---


def _arguments(
    model: Module, input_size: Any, input_data: Any, batch_dim: int | None, device: DeviceLike | None, kinds: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for the model."""
    if input_data is not None:
        if isinstance(input_data, Mapping):
            return [], dict(input_data)
        return (list(input_data), {}) if isinstance(input_data, (tuple, list)) else ([input_data], {})
    if input_size is None:
        raise ArgumentError("summary: pass input_size, the shape of the argument, or input_data")
    shapes = [tuple(input_size)] if all(isinstance(n, int) for n in input_size) else [tuple(s) for s in input_size]
    if batch_dim is not None:
        shapes = [(*shape[:batch_dim], 1, *shape[batch_dim:]) for shape in shapes]
    if device is None:
        first = next(iter([*model.parameters(), *model.buffers()]), None)
        device = None if first is None else first.meta.device
    input_dtypes = (
        [dtypes.parse(kind) for kind in kinds] if kinds is not None else [dtypes.default_dtype()] * len(shapes)
    )
    if len(input_dtypes) != len(shapes):
        raise ArgumentError(f"summary: there are {len(shapes)} shapes and {len(input_dtypes)} dtypes")
    args = [
        (rand if kind.kind == "f" else zeros)(shape, dtype=kind, device=device)
        for shape, kind in zip(shapes, input_dtypes, strict=True)
    ]
    return args, {}


@contextmanager
def _in_mode(model: Module, mode: str) -> Iterator[None]:
    old_modes = [(module, module.training) for module in model.modules()]
    if mode != "same":
        model.train(mode == "train")
    try:
        yield
    finally:
        for module, was_training in old_modes:
            module.training = was_training


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


class _Recorder(Mode):
    """Notes each call of a module, and counts multiplications."""

    passive = True

    def __init__(self, model: Module):
        self.layers: list[LayerInfo] = []
        self._names = {id(module): path.rpartition(".")[2] for path, module in model.named_modules()}
        self._open: list[LayerInfo] = []
        self._counts: dict[int, int] = {}
        self._counted: set[int] = set()  # modules
        self._is_counting = True

    def __enter__(self) -> _Recorder:
        super().__enter__()
        self._handles = [global_forward_pre.add(self._enter), global_forward.add(self._leave, False, False, True)]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        super().__exit__()

    def call(
        self, record: OpRecord, operands: Sequence[object], statics: Statics, outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> CallResult:  # fmt: skip
        """Run the call, and add its multiplications to the layers in which it is."""
        result = self.proceed(record, operands, statics, outs, in_place)
        self._add(_mult_adds(record, operands, result))
        return result

    def composite(
        self, record: OpRecord, operands: Sequence[object], statics: Statics, compute: Callable[[], _Result]
    ) -> _Result:
        """Run a function of several ops. A recurrent layer runs ops that no mode observes: count it by its weights."""
        if record.name != "recurrent_layer":
            return super().composite(record, operands, statics, compute)
        rows, _, _, *weights = operands
        assert isinstance(rows, Tensor)
        matrices = [w.meta.numel for w in weights if isinstance(w, Tensor) and w.meta.ndim == 2]
        self._add(rows.meta.shape[0] * sum(matrices))
        self._is_counting = False
        try:
            return super().composite(record, operands, statics, compute)
        finally:
            self._is_counting = True

    def _add(self, count: int) -> None:
        for layer in self._open if count and self._is_counting else ():
            layer.mult_adds += count

    def _enter(self, module: Module, args: tuple[object, ...]) -> None:
        if id(module) not in self._names:
            return
        depth = len(self._open)
        if self._open:
            self._open[-1].is_leaf = False
        self._counts[depth] = self._counts.get(depth, 0) + 1
        is_recursive = id(module) in self._counted
        parameters = [] if is_recursive else list(module.parameters())
        buffers = [] if is_recursive else list(module.buffers())
        self._counted.add(id(module))
        layer = LayerInfo(
            module, self._names[id(module)], depth, self._counts[depth], sum(p.meta.numel for p in parameters),
            sum(p.meta.numel for p in parameters if p.requires_grad),
            sum(t.meta.nbytes for t in [*parameters, *buffers]), is_recursive,
            [tuple(t.meta.shape) for t in _tensors(args)],
        )  # fmt: skip
        self.layers.append(layer)
        self._open.append(layer)

    def _leave(self, module: Module, _: object, output: object) -> None:
        if id(module) not in self._names:
            return
        layer = self._open.pop()
        tensors = list(_tensors(output))
        layer.output_shapes = [tuple(t.meta.shape) for t in tensors]
        if layer.is_leaf:
            layer.output_bytes = sum(t.meta.nbytes for t in tensors)


def _mult_adds(record: OpRecord, operands: Sequence[object], result: CallResult) -> int:
    """Return the multiplications of a matrix product or a convolution; 0 for other ops."""
    output = result if isinstance(result, Tensor) else result[0]
    shapes = [operand.meta.shape for operand in operands if isinstance(operand, Tensor)]
    if record.kind == "contraction":
        equation = record.detail.get("equation", "")
        names = record.detail.get("factors") or ()
        positions = [i for i, operand in enumerate(record.operands) if operand.name in names] or [0, 1]
        left, right = (shapes[p] for p in positions[:2])
        terms, _, result_term = equation.partition("->")
        first, second = terms.split(",")
        sizes = {**_letter_sizes(first, left), **_letter_sizes(second, right)}
        summed = set(first.replace(".", "") + second.replace(".", "")) - set(result_term)
        return int(output.meta.numel * math.prod(sizes[letter] for letter in summed))
    if record.name == "convolution":
        return int(output.meta.numel * math.prod(shapes[1][1:]))
    if record.name == "convolution_input":
        return int(math.prod(shapes[0]) * math.prod(shapes[1][1:]))
    if record.name == "attention":
        (batch, heads, length, width), keys = shapes[0], shapes[1][2]
        return int(batch * heads * length * keys * (width + shapes[2][3]))
    return 0


def _letter_sizes(term: str, shape: Sequence[int]) -> dict[str, int]:
    """Return the size of each letter of an equation's term; `...` stands for any dimensions before."""
    letters = term.replace("...", "")
    return dict(zip(letters, shape[len(shape) - len(letters) :], strict=True))


# --- The table ---


def _layer_text(layer: LayerInfo) -> str:
    label = f" ({layer.name})" if layer.name else ""
    indent = "│    " * (layer.depth - 1) + "├─" if layer.depth else ""
    number = f": {layer.depth}-{layer.index}" if layer.depth else ""
    return f"{indent}{layer.class_name}{label}{number}"


def _cell(layer: LayerInfo, column: str) -> str:
    if column in ("input_size", "output_size"):
        shapes = layer.input_shapes if column == "input_size" else layer.output_shapes
        return ", ".join(str(list(shape)) for shape in shapes) or "--"
    if column == "num_params":
        has_parameters = next(layer.module.parameters(), None) is not None
        return "--" if not has_parameters else "(recursive)" if layer.is_recursive else f"{layer.num_params:,}"
    if column == "memory":
        nbytes = layer.param_bytes + layer.output_bytes
        return format_bytes(nbytes) if nbytes else "--"
    if column == "mult_adds":
        return f"{layer.mult_adds:,}" if layer.mult_adds else "--"
    if column == "kernel_size":
        size = getattr(layer.module, "kernel_size", None)
        return "--" if size is None else str([size] if isinstance(size, int) else list(size))
    if not layer.num_params:
        return "--"
    return {0: "False", layer.num_params: "True"}.get(layer.trainable_params, "Partial")
