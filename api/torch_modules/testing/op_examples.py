"""Run the field `example` of a spec: one call and the text of its result."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib import import_module

from ..codegen.examples import doctest_lines
from ..codegen.model import Op
from ..runtime.device import Device, default_device, set_default_device
from ..runtime.errors import WeftgradError
from ..runtime.tensor import Tensor

__all__ = ["example_shapes", "wrong_example_output"]

_DEVICE = re.compile(r",\s*device='[^']*'")


def wrong_example_output(op: Op, function: Callable[..., object], device: Device) -> str:
    """Return what the call of an op's example prints on a device if the spec says something else, otherwise "".

    White space does not count, nor does the name of the device.

    Args:
        op: An op with an example.
        function: Its function.
        device: The device on which the tensors of the example are created.
    """
    call, *lines = doctest_lines(op)
    previous_device = default_device()
    set_default_device(device)
    try:
        result = _evaluate(call.removeprefix(">>> "), dict.fromkeys((op.name, *op.alias), function))
        printed = _DEVICE.sub("", repr(result))
    except (WeftgradError, AttributeError, TypeError, ValueError) as error:
        printed = f"{type(error).__name__}: {error}"
    finally:
        set_default_device(previous_device)
    return "" if printed.split() == "\n".join(lines).split() else " ".join(printed.split())


def example_shapes(op: Op) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that the example of an op passes, by parameter; {} without an example."""
    if not op.example:
        return {}
    text = doctest_lines(op)[0].removeprefix(">>> ")
    calls = [node for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Call)]
    call = next(node for node in calls if isinstance(node.func, ast.Name) and node.func.id in (op.name, *op.alias))
    arguments = {p.name: node for p, node in zip(op.params, call.args, strict=False)}
    arguments |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    values = {name: _evaluate(ast.unparse(node), {}) for name, node in arguments.items()}
    return {name: tuple(value.shape) for name, value in values.items() if isinstance(value, Tensor)}


def _evaluate(text: str, functions: dict[str, Callable[..., object]]) -> object:
    # safe: `codegen.examples` accepts calls of weftgrad's functions with literals only
    package = import_module(__name__.partition(".")[0])
    return eval(text, {"__builtins__": {}, "wg": package, **functions})
