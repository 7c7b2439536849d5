"""Exceptions of the exporter and of the importer, under PyTorch's names."""

from __future__ import annotations

from ..runtime.errors import ArgumentError, DriverNotFound, NotSupported, WeftgradError

__all__ = ["DynamicSizeError", "OnnxExporterError", "OnnxImportError", "PackageNotFound", "UnsupportedOperatorError"]


class OnnxExporterError(WeftgradError, RuntimeError):
    """A model cannot be exported."""


class UnsupportedOperatorError(OnnxExporterError, NotSupported):
    """The model calls an op that has no row in the exporter's table."""


class DynamicSizeError(OnnxExporterError, ArgumentError):
    """A dynamic dimension determines something that an ONNX graph cannot express."""


class OnnxImportError(WeftgradError, RuntimeError):
    """An ONNX file has a node that the importer does not run."""


class PackageNotFound(DriverNotFound):
    """The package `onnx` is not installed."""
