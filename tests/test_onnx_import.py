"""Check the importer against files and expected outputs that come with the package onnx, and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weftgrad as wg

onnx = pytest.importorskip("onnx")

DATA = Path(onnx.__file__).parent / "backend/test/data"
# Models that PyTorch exported, with the outputs that it computed.
FILES = [
    f"pytorch-{kind}/test_{name}"
    for kind, names in {
        "converted": (
            "AvgPool2d", "BatchNorm2d_eval", "Conv1d_dilated", "Conv2d_depthwise", "ConvTranspose2d", "Embedding",
            "GLU", "LeakyReLU", "Linear", "LogSoftmax", "MaxPool2d_stride_padding_dilation", "PReLU_2d_multiparam",
            "PixelShuffle", "ReflectionPad2d", "SELU", "Softplus", "ZeroPad2d", "softmax_lastdim",
        ),
        "operator": (
            "operator_addmm", "operator_chunk", "operator_clip", "operator_index", "operator_pad", "operator_permute2",
            "operator_reduced_mean_keepdim", "operator_repeat_dim_overflow", "operator_view",
        ),
    }.items()
    for name in names
]  # fmt: skip


def read_tensors(folder: Path, kind: str) -> list[np.ndarray]:
    paths = sorted(folder.glob(f"{kind}_*.pb"))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(str(path))) for path in paths]


@pytest.mark.parametrize("name", FILES)
def test_files_of_pytorch(name: str) -> None:
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip("this version of onnx has no such file")
    model = wg.onnx.load(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):
        output = model(*(wg.tensor(array) for array in read_tensors(data, "input")))
        for tensor, expected in zip(
            [output] if isinstance(output, wg.Tensor) else output, read_tensors(data, "output"), strict=True
        ):
            np.testing.assert_allclose(tensor.detach().numpy(), expected, rtol=1e-3, atol=1e-5)


def node_model(op_type: str, inputs: list[np.ndarray], ranks: list[int], opset: int = 20, **attributes):
    """Return a model of one node, whose outputs have these numbers of dimensions."""
    names = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(len(ranks))]
    node = onnx.helper.make_node(op_type, *names, **attributes)
    make_info, to_type = onnx.helper.make_tensor_value_info, onnx.helper.np_dtype_to_tensor_dtype
    graph = onnx.helper.make_graph(
        [node], "graph",
        [make_info(n, to_type(array.dtype), array.shape) for n, array in zip(names[0], inputs, strict=True)],
        [make_info(n, onnx.TensorProto.FLOAT, [None] * rank) for n, rank in zip(names[1], ranks, strict=True)],
    )  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)


CALLS = {
    "Slice backwards": ("Slice", {}, [np.arange(6.0), [4], [-7], [0], [-2]]),
    "Split": ("Split", {"axis": 1, "num_outputs": 2}, [np.arange(10.0).reshape(2, 5)]),
    "Gather of negative indices": ("Gather", {"axis": 1}, [np.arange(6.0).reshape(2, 3), [[-1, 0]]]),
    "GatherND": ("GatherND", {"batch_dims": 1}, [np.arange(8.0).reshape(2, 2, 2), [[1], [0]]]),
    "ScatterND": ("ScatterND", {"reduction": "max"}, [np.arange(4.0), [[1], [1]], np.array([3.0, 0.5])]),
    "OneHot": ("OneHot", {"axis": 0}, [[1, -1], 3, np.array([0.0, 2.0])]),
    "CumSum": ("CumSum", {"exclusive": 1, "reverse": 1}, [np.arange(5.0), 0]),
    "MaxPool SAME_LOWER": (
        "MaxPool", {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}, [np.arange(9.0).reshape(1, 1, 3, 3)]
    ),
    "AveragePool": ("AveragePool", {"kernel_shape": [3], "pads": [0, 2]}, [np.arange(5.0).reshape(1, 1, 5)]),
    "ConvTranspose": (
        "ConvTranspose", {"strides": [2], "pads": [1, 0]}, [np.arange(3.0).reshape(1, 1, 3), np.ones((1, 1, 3))]
    ),
    "Gemm": (
        "Gemm", {"transA": 1, "alpha": 0.5, "beta": 2.0},
        [np.ones((3, 2)), np.arange(12.0).reshape(3, 4), np.arange(4.0)],
    ),
    "ReduceLogSum": ("ReduceLogSum", {"keepdims": 0}, [np.arange(1, 7.0).reshape(2, 3), [1]]),
    "Pad": ("Pad", {"mode": "edge"}, [np.arange(6.0).reshape(2, 3), [1, 0, 0, 2]]),
    "DepthToSpace": ("DepthToSpace", {"blocksize": 2, "mode": "DCR"}, [np.arange(16.0).reshape(1, 8, 1, 2)]),
    "Resize": ("Resize", {"mode": "cubic", "cubic_coeff_a": -0.5, "coordinate_transformation_mode": "asymmetric"},
               [np.arange(16.0).reshape(1, 1, 4, 4), np.zeros(0), np.array([1.0, 1.0, 1.5, 2.0])]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_nodes_against_the_reference_of_onnx(name: str) -> None:
    """`onnx.reference` is an implementation in NumPy."""
    from onnx.reference import ReferenceEvaluator

    op_type, attributes, inputs = CALLS[name]
    arrays = [np.asarray(x, np.float32 if isinstance(x, np.ndarray) else np.int64) for x in inputs]
    count = 2 if op_type == "Split" else 1
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    expected = ReferenceEvaluator(node_model(op_type, arrays, [0] * count, **attributes)).run(None, feeds)
    model = node_model(op_type, arrays, [reference.ndim for reference in expected], **attributes)
    output = wg.onnx.load(model)(*(wg.tensor(array) for array in arrays))
    outputs = [output] if isinstance(output, wg.Tensor) else output
    for tensor, reference in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(tensor.numpy(), reference, rtol=1e-5, atol=1e-5)


def test_unknown_nodes_are_named() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(wg.onnx.OnnxImportError, match=r"Hardmax.* no function for this operator"):
        wg.onnx.load(node_model("Hardmax", [x], [2]))
    with pytest.raises(wg.onnx.OnnxImportError, match="not a valid ONNX model"):
        wg.onnx.load(node_model("Relu", [x, x], [2]))


def test_axes_as_attributes_of_older_opsets() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    x = wg.tensor(array)
    assert wg.onnx.load(node_model("Squeeze", [array], [2], 11, axes=[1]))(x).shape == (2, 3)
    assert wg.onnx.load(node_model("ReduceMean", [array], [2], 11, axes=[2], keepdims=0))(x).tolist() == [[1.0], [4.0]]
    assert wg.onnx.load(node_model("Clip", [array], [3], 6, min=1.0, max=3.0))(x).max().item() == 3.0
