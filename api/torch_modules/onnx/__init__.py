"""Exchange models as ONNX files: `export` writes one under PyTorch's signature, `load` reads one as a `Module`.

    wg.onnx.export(model, images, "model.onnx", input_names=["images"], dynamic_axes={"images": {0: "batch"}})
    model = wg.onnx.load("model.onnx")

Both need the package `onnx`, which `pip install 'weftgrad[onnx]'` installs. `exporter` and `importer` say which modules
to read.
"""

from .errors import DynamicSizeError, OnnxExporterError, OnnxImportError, PackageNotFound, UnsupportedOperatorError
from .exporting import ONNXProgram, TrainingMode, export, is_in_onnx_export
from .loading import load

__all__ = [
    "DynamicSizeError", "ONNXProgram", "OnnxExporterError", "OnnxImportError", "PackageNotFound", "TrainingMode",
    "UnsupportedOperatorError", "export", "is_in_onnx_export", "load",
]  # fmt: skip
