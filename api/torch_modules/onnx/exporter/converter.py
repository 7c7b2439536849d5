"""Convert all calls of a program, in order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from ...runtime import host_data
from ...runtime.tensor import Tensor
from ..errors import DynamicSizeError, OnnxExporterError
from .capture import Constant
from .conversion import Conversion, RowResult
from .graph import Graph, Value
from .memory import Contents, Missing, Packed, Written
from .program import Call, Program, Ref, call_text
from .table import find_row
from .view_rows import VIEW_ROWS, ViewConversion

__all__ = ["convert"]


def convert(program: Program, graph: Graph, input_names: list[str], buffer_names: set[str]) -> list[Value]:
    """Add the nodes of all live calls to a graph.

    Args:
        program: The calls.
        graph: The graph.
        input_names: Names of the graph's inputs.
        buffer_names: Paths of the model's buffers; its other members are parameters.

    Returns:
        The values of the program's outputs.

    Raises:
        OnnxExporterError: The outputs depend on a call that cannot be expressed.
    """
    contents = Contents(
        graph, _all_refs(program), lambda call, value: _convert_view(call, value, graph), program.computed
    )
    for name, ref in zip(input_names, program.inputs, strict=True):
        contents.write(ref, name)
        graph.note_sizes(name, ref.shape)
    for ref, name, tensor in program.members:
        doc = "buffer" if name in buffer_names else ""
        contents.write_initial(ref, _initializer(graph, name, tensor, doc))
    _write_initial_constants(program, graph, contents)
    for index in sorted(program.live):
        call = program.calls[index]
        if call.record.kind == "view":
            contents.add_view(call)
        elif any(ref.memory in program.computed for ref in call.results):
            graph.scope = call.layer
            _write_results(call, _convert_call(call, graph, contents), contents)
    graph.scope = ""
    return [_output(program, i, graph, contents) for i in range(len(program.outputs))]


def _all_refs(program: Program) -> list[Ref]:
    live_calls = [program.calls[index] for index in sorted(program.live)]
    refs = chain.from_iterable((*call.refs(), *call.results) for call in live_calls)
    return [*program.inputs, *(ref for ref, _, _ in program.members), *refs, *program.outputs]


def _initializer(graph: Graph, name: str, tensor: Tensor, doc: str) -> Callable[[], Value]:
    return lambda: graph.initializer(name, host_data.host_array(tensor.detach()), tensor.meta.dtype, doc)


def _write_initial_constants(program: Program, graph: Graph, contents: Contents) -> None:
    """Write what memories contain that calls change, but that no recorded call has made."""
    written = {ref.memory for ref, _, _ in program.members} | {ref.memory for ref in program.inputs}
    largest_refs: dict[int, tuple[Ref, Constant, bool]] = {}
    for call in program.calls:
        constants = [(call.operands[p], c, p in call.unstable) for p, c in call.constants.items()]
        for ref, constant, is_unstable in [*constants, *((r, c, False) for r, c in call.overwritten)]:
            if not isinstance(ref, Ref) or ref.memory in written or ref.memory not in program.computed:
                continue
            if ref.memory not in largest_refs or largest_refs[ref.memory][0].meta.numel < ref.meta.numel:
                largest_refs[ref.memory] = (ref, constant, is_unstable)
        if call.record.kind != "view":
            written.update(ref.memory for ref in call.results)
    for ref, constant, is_unstable in largest_refs.values():
        contents.write_initial(ref, _constant_value(graph, ref, constant, is_unstable))


def _constant_value(graph: Graph, ref: Ref, constant: Constant, is_unstable: bool) -> Written:
    if is_unstable:
        return Missing(
            DynamicSizeError(
                f"export: a tensor of shape {list(ref.meta.shape)} is made from Python numbers that depend on a "
                "dynamic dimension; make it with tensor functions such as arange, full or zeros"
            )
        )
    return lambda: graph.constant(constant.values(), ref.dtype)


def _convert_call(call: Call, graph: Graph, contents: Contents) -> RowResult:
    conversion = Conversion(call, graph, contents)
    try:
        return find_row(conversion)(conversion)
    except DynamicSizeError as error:
        return Missing(DynamicSizeError(_with_place(error, call)))
    except OnnxExporterError as error:
        return Missing(error)


def _with_place(error: DynamicSizeError, call: Call) -> str:
    text = str(error)
    return text if text.startswith("export:") else f"export: {call_text(call.record, call.layer)}: {text}"


def _convert_view(call: Call, value: Value, graph: Graph) -> Value:
    conversion = ViewConversion(call, graph, value)
    row = VIEW_ROWS.get(call.record.name)
    try:
        if row is None:
            raise conversion.unsupported("the exporter's table has no row for this op")
        return row(conversion)
    except DynamicSizeError as error:
        raise DynamicSizeError(_with_place(error, call)) from None


def _write_results(call: Call, values: RowResult, contents: Contents) -> None:
    if isinstance(values, Missing):
        written: list[Written | None] = [values] * len(call.results)
    elif isinstance(values, (str, Packed)):
        written = [values]
    else:
        written = list(values)
    absent = OnnxExporterError(
        f"export: {call_text(call.record, call.layer)}: this result of the op cannot be expressed"
    )
    for position, ref in enumerate(call.results):
        value = written[position] if position < len(written) else None
        contents.write(ref, Missing(absent) if value is None else value)


def _output(program: Program, position: int, graph: Graph, contents: Contents) -> Value:
    ref = program.outputs[position]
    constant = program.output_constants.get(position)
    if constant is not None and constant.array is not None and ref.memory not in program.computed:
        return graph.constant(constant.array, ref.dtype)
    try:
        value = contents.read(ref)
    except DynamicSizeError as error:
        text = str(error)
        raise DynamicSizeError(text if text.startswith("export:") else f"export: output {position}: {text}") from None
    if isinstance(value, Packed):
        raise OnnxExporterError("export: the model returns packed sequences; return what pad_packed_sequence returns")
    return value
