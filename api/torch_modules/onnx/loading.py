"""`load`: read an ONNX file as a module."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO

from .importer.module import OnnxModule, read_model

if TYPE_CHECKING:
    from ..runtime.device import DeviceLike

__all__ = ["load"]


def load(f: str | os.PathLike[str] | BinaryIO | bytes | Any, *, device: DeviceLike | None = None) -> OnnxModule:
    """Read an ONNX file as a module that runs its graph.

    The module is in evaluation mode. Its parameters can be trained: in training mode, batch norm uses the statistics of
    the batch, and dropout drops. The file is checked by `onnx.checker`, and nothing in it is run as code.

    Args:
        f: Path, open file, bytes, or an `onnx.ModelProto`.
        device: Device of the parameters and buffers; None for the default device.

    Returns:
        `OnnxModule`, a `Module` whose `forward` takes the graph's inputs, by position or by name, and returns its
        output, or a tuple of its outputs.

    Raises:
        PackageNotFound: The package `onnx` is not installed.
        OnnxImportError: The graph has a node that is not supported; the message names it.

    Example:
        >>> model = wg.nn.Linear(3, 2)
        >>> program = wg.onnx.export(model, wg.ones(4, 3))  # doctest: +SKIP
        >>> loaded = wg.onnx.load(program.model_proto)  # doctest: +SKIP
        >>> [name for name, _ in loaded.named_parameters()]  # doctest: +SKIP
        ['weight', 'bias']
    """
    model_proto, folder = read_model(f)
    _check(os.fspath(f) if isinstance(f, (str, os.PathLike)) else model_proto)
    return OnnxModule(model_proto, device, folder).eval()


def _check(model: Any) -> None:
    """Check a model, or the file of a path, beside which the checker looks for external data."""
    import onnx  # lazy: optional dependency

    from .errors import OnnxImportError

    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise OnnxImportError(f"load: the file is not a valid ONNX model: {error}") from None
