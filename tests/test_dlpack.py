"""Memory that other libraries share: DLPack with and without a version, NumPy's protocols, the buffers of CUDA."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import weakref

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.creation import dlpack
from weftgrad.runtime.errors import ArgumentError, DTypeError, ExchangeError

CPU = wg.device("cpu")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
has_versions = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy makes capsules with a version from 2.1 on"
)


def name_of(capsule) -> bytes:
    function = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    return function(capsule)


def content_of(capsule):
    return dlpack._content(capsule)


class Capsule:
    """A producer that hands over what it was made with, as other libraries' arrays do."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **options):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_shares_memory_both_ways(dtype):
    x = wg.tensor([[1, 0, 1], [0, 1, 1]], dtype=dtype, device="cpu")
    array = np.from_dlpack(x)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == x.tolist()
    array[0, 1] = 1
    assert x[0, 1].item() == 1
    y = wg.from_dlpack(array.T)
    assert (str(y.dtype), y.shape, y.stride()) == (f"weftgrad.{dtype}", (3, 2), (1, 3))
    y[0, 0] = 0
    assert x[0, 0].item() == 0


def test_memory_lives_as_long_as_one_of_both():
    array = np.arange(4.0)
    reference = weakref.ref(array)
    x = wg.from_dlpack(array)
    del array
    gc.collect()
    assert reference() is not None
    assert x.tolist() == [0, 1, 2, 3]
    y = np.from_dlpack(wg.arange(3, device="cpu") * 2)  # its tensor is gone
    wg.ones(3, device="cpu")
    assert y.tolist() == [0, 2, 4]
    del x
    gc.collect()
    assert reference() is None


def test_versions_of_the_capsule():
    x = wg.ones(2, 3, device="cpu")
    old = x.__dlpack__()
    assert name_of(old) == name_of(x.__dlpack__(max_version=(0, 8))) == b"dltensor"
    memory = content_of(old).tensor
    assert (memory.ndim, memory.code, memory.bits, memory.lanes, memory.device_type) == (2, 2, 32, 1, 1)
    assert [memory.shape[i] for i in range(2)] == [2, 3]
    assert memory.data + memory.byte_offset == x.data_ptr()
    assert x.__dlpack_device__() == (1, 0)


@has_versions
def test_flags_of_versioned_capsules():
    x = wg.ones(3, device="cpu")
    capsule = x.__dlpack__(max_version=(1, 0))
    shared = content_of(capsule)
    assert (shared.major, shared.flags, shared.tensor.data) == (1, 0, x.data_ptr())
    capsule = x.__dlpack__(max_version=(2, 5), copy=True)
    assert name_of(capsule) == b"dltensor_versioned"
    copied = content_of(capsule)
    assert copied.flags == 2
    assert copied.tensor.data != x.data_ptr()
    y = wg.from_dlpack(x, copy=True)
    y[0] = 5
    assert x.tolist() == [1, 1, 1]
    copied.major = 2
    with pytest.raises(BufferError, match="version 2"):
        wg.from_dlpack(Capsule(capsule))
    copied.major = 1
    assert wg.from_dlpack(Capsule(capsule)).tolist() == [1, 1, 1]


@has_versions
def test_read_only_memory_is_copied():
    array = np.arange(3)
    array.flags.writeable = False
    x = wg.from_dlpack(array)
    x[0] = 7
    assert (x.tolist(), array[0]) == ([7, 1, 2], 0)
    with pytest.raises(BufferError, match="read-only"):
        wg.from_dlpack(array, copy=False)


def test_strides():
    array = np.arange(12).reshape(3, 4)
    assert wg.from_dlpack(array[:, ::2]).stride() == (4, 2)
    assert wg.from_dlpack(array[::-1]).tolist() == array[::-1].tolist()
    with pytest.raises(BufferError, match="negative strides"):
        wg.from_dlpack(array[::-1], copy=False)
    x = wg.arange(12, device="cpu").reshape(3, 4)[1:, ::2]
    assert np.from_dlpack(x).strides == (32, 16)
    assert np.from_dlpack(x).tolist() == [[4, 6], [8, 10]]
    assert np.from_dlpack(wg.ones(1, device="cpu").expand(3, 2)).strides == (0, 0)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_shapes_without_dimensions_or_elements(shape):
    x = wg.zeros(shape, device="cpu")
    assert np.from_dlpack(x).shape == shape
    y = wg.from_dlpack(np.ones(shape, np.int16))
    assert (y.shape, y.dtype) == (shape, wg.int16)


def test_bfloat16_between_our_own_tensors():
    x = wg.tensor([1.5, -2.0, 3.0], dtype=wg.bfloat16, device="cpu")
    capsule = x.__dlpack__()
    assert (content_of(capsule).tensor.code, content_of(capsule).tensor.bits) == (4, 16)
    y = wg.from_dlpack(Capsule(capsule))
    assert y.dtype == wg.bfloat16
    y[1] = 4.0
    assert x.tolist() == [1.5, 4, 3]
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        np.from_dlpack(x)  # NumPy has no such dtype, and frees the capsule while its error is set
    assert x.tolist() == [1.5, 4, 3]


def test_a_capsule_is_consumed_once():
    capsule = wg.ones(2, device="cpu").__dlpack__()
    assert wg.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises(BufferError, match="consumed before"):
        wg.from_dlpack(capsule)
    with pytest.raises(BufferError, match="no DLPack capsule"):
        wg.from_dlpack(Capsule(3))
    with pytest.raises(TypeError, match="__dlpack__"):
        wg.from_dlpack(3)


def test_a_capsule_that_nobody_consumes_frees_the_memory():
    x = wg.ones(3, device="cpu")
    reference = weakref.ref(x.storage)
    capsule = x.__dlpack__()
    del x
    gc.collect()
    assert reference() is not None
    del capsule
    gc.collect()
    assert reference() is None


def test_producers_from_before_the_version():
    class Old(Capsule):
        def __dlpack__(self, stream=None):
            return self.capsule

    x = wg.arange(3, device="cpu")
    y = wg.from_dlpack(Old(x.__dlpack__()))
    assert y.data_ptr() == x.data_ptr()
    z = wg.from_dlpack(Old(x.__dlpack__()), copy=True)
    assert z.data_ptr() != x.data_ptr()
    assert z.tolist() == [0, 1, 2]


def test_a_producer_that_copied_is_not_copied_again():
    asked = {}

    class Copies(Capsule):
        def __dlpack__(self, **options):
            asked.update(options)
            return self.capsule

    x = wg.arange(3, device="cpu")
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    address = content_of(capsule).tensor.data
    y = wg.from_dlpack(Copies(capsule), copy=True)
    assert asked == {"max_version": (1, 0), "copy": True}
    if name_of(capsule) == b"used_dltensor_versioned":
        assert y.data_ptr() == address


def test_devices_and_errors():
    x = wg.ones(2, device="cpu")
    for arguments, words in (
        ({"stream": 1}, "no stream 1"),
        ({"dl_device": (2, 0)}, "cannot be handed over"),
    ):
        with pytest.raises(BufferError, match=words):
            x.__dlpack__(**arguments)
    with pytest.raises(BufferError, match="detach"):
        x.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="device type 8"):
        wg.from_dlpack(Capsule(rewritten(x.__dlpack__(), device_type=8)))
    for code, bits, words in ((1, 16, "uint16"), (5, 64, "complex64"), (9, 8, "type 9 of8")):
        with pytest.raises(DTypeError, match=words):
            wg.from_dlpack(Capsule(rewritten(x.__dlpack__(), code=code, bits=bits)))
    with pytest.raises(DTypeError, match="vectors of 4"):
        wg.from_dlpack(Capsule(rewritten(x.__dlpack__(), lanes=4)))
    assert wg.from_dlpack(np.ones(2), device="cpu").device == CPU
    with pytest.raises(ExchangeError):
        wg.ones(2, device="meta").__dlpack_device__()


def rewritten(capsule, **values):
    for name, value in values.items():
        setattr(content_of(capsule).tensor, name, value)
    return capsule


def test_memory_of_an_opencl_device_is_copied_to_the_host():
    devices = [d for d in wg.devices() if d.type == "opencl"]
    if not devices:
        pytest.skip("needs an OpenCL device")
    x = wg.arange(4, device=devices[0])[1:]
    assert x.__dlpack_device__() == (4, devices[0].index)
    with pytest.raises(BufferError, match=r"\.cpu\(\)"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="copied to the host"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    assert wg.from_dlpack(Capsule(x.__dlpack__(dl_device=(1, 0)))).tolist() == [1, 2, 3]
    assert wg.from_dlpack(x, device="cpu").tolist() == [1, 2, 3]
    assert wg.from_dlpack(np.arange(3), device=devices[0]).device == devices[0]


def test_the_interpreter_shares_the_memory_of_the_host():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton")
    x = wg.tensor([1.0, 2.0], device="interpreter")
    array = np.from_dlpack(x)
    array[0] = 5
    assert x.tolist() == [5, 2]


def test_array_protocol():
    x = wg.tensor([1, 2], device="cpu")
    shared = np.asarray(x)
    shared[0] = 5
    assert x.tolist() == [5, 2]
    copied = np.array(x)
    copied[0] = 0
    assert x.tolist() == [5, 2]
    assert x.__array__(copy=True).base is None
    assert x.__array__("int64", copy=False).ctypes.data == x.data_ptr()
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copied to be float32"):
        x.__array__("float32", copy=False)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="float32"):
            np.asarray(x, dtype=np.float32, copy=False)


def test_only_cuda_tensors_have_the_interface_of_cuda():
    assert not hasattr(wg.ones(2, device="cpu"), "__cuda_array_interface__")


def test_torch_shares_memory_both_ways():
    torch = pytest.importorskip("torch")
    for name in (*DTYPES, "bfloat16"):
        dtype = getattr(torch, name)
        x = wg.tensor([[1, 0], [1, 1], [0, 1]], dtype=name, device="cpu")
        for theirs in (torch.from_dlpack(x), torch.from_dlpack(x.__dlpack__())):
            assert theirs.dtype == dtype
            assert theirs.tolist() == x.tolist()
            theirs[0, 1] = 1
            assert x[0, 1].item() == 1
        ours = wg.from_dlpack(theirs.T)
        assert (str(ours.dtype), ours.shape, ours.data_ptr()) == (f"weftgrad.{name}", (2, 3), x.data_ptr())
        ours[0, 0] = 0
        assert theirs[0, 0].item() == 0
    copied = torch.from_dlpack(x, copy=True)
    assert copied.data_ptr() != x.data_ptr()
    assert wg.from_dlpack(torch.arange(3), copy=True).tolist() == [0, 1, 2]


def test_ml_dtypes_has_bfloat16_for_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    x = wg.from_numpy(array)
    assert (x.dtype, x.tolist()) == (wg.bfloat16, [1.5, -2])
    for copied in (wg.tensor(array), wg.as_tensor(array, dtype=wg.float32), wg.tensor(list(array))):
        assert copied.tolist() == [1.5, -2]
    assert wg.tensor(array).dtype == wg.bfloat16
    shared = x.numpy()
    assert shared.dtype == array.dtype
    shared[0] = 4
    assert (array[0], x[0].item()) == (4, 4)
    assert np.asarray(x).dtype == array.dtype


def test_arguments_are_checked():
    with pytest.raises(ArgumentError, match="from_numpy"):
        wg.from_numpy([1, 2])
