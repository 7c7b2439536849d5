"""Check memory in the interpreter of Triton kernels: accesses outside an argument, and promises of alignment."""

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from interpreter_running import BLOCK, aligned_zeros, region_of, run

from weftgrad.runtime.errors import LaunchError
from weftgrad.runtime.triton.interpret import launch


@triton.jit
def shift(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + by, mask=i < n, other=-1), mask=i < n)


def launch_shift(x, out, n, by, grid=(1,)):
    run(shift, x, out, grid=grid, types=("i32", "i32"), values=(n, by), BLOCK=BLOCK)


def test_lanes_that_are_masked_off_may_point_anywhere():
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    launch_shift(x, out, 10, 0)
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(("n", "by", "offset"), [(10, 1, 40), (10, -3, -12), (20, 0, 40)])
def test_a_read_outside_of_an_argument_is_an_error(n, by, offset):
    """The error names the byte offset of the first wrong element."""
    memory = np.arange(100, dtype=np.float32)  # the memory exists, but does not belong to this argument
    out = np.zeros(20, np.float32)
    outside = rf"shift: program \(0, 0, 0\) reads outside the memory of x: at byte {offset} of 40"
    with pytest.raises(LaunchError, match=outside):
        launch_shift(memory[50:60], out, n, by)


def test_a_write_outside_of_an_argument_is_an_error():
    x, memory = np.arange(70, dtype=np.float32), np.zeros(100, np.float32)
    outside = r"program \(1, 0, 0\) writes outside the memory of out: at byte 264 of 264 \(4 "
    with pytest.raises(LaunchError, match=outside):
        launch_shift(x, memory[:66], 70, 0, grid=(2,))
    assert not memory[66:].any()


@triton.jit
def load_beyond_first_four(x, y, out):
    tl.store(out, tl.load(x + 4))


def test_memory_of_another_argument_is_outside():
    """x and y are adjacent in memory: a pointer computed from x must not reach y."""
    memory, out = np.arange(8, dtype=np.float32), np.zeros(1, np.float32)
    with pytest.raises(LaunchError, match="outside the memory of x: at byte 16 of 16"):
        run(load_beyond_first_four, memory[:4], memory[4:], out)


@triton.jit
def move_pointer(x, out, BLOCK: tl.constexpr, DERIVATION: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if DERIVATION == "broadcast":
        p = tl.trans(tl.broadcast_to((x + i)[:, None], (BLOCK, 2)))
        v = tl.sum(tl.load(p), 0)
    elif DERIVATION == "reshape":
        v = tl.load(tl.reshape(tl.reshape(x + i, (2, BLOCK // 2)), (BLOCK,)))
    elif DERIVATION == "select":
        v = tl.load(tl.where(i < 4, x + i, x + i * 2))
    elif DERIVATION == "bytes":
        v = tl.load(x.to(tl.pointer_type(tl.int8)) + i * 4)
    tl.store(out + i, v)


@pytest.mark.parametrize("derivation", ["broadcast", "reshape", "select", "bytes"])
def test_derived_pointers_belong_to_their_argument(derivation):
    memory, out = np.arange(2 * BLOCK, dtype=np.float32), np.zeros(2 * BLOCK, np.float32)
    run(move_pointer, memory, memory, BLOCK=BLOCK, DERIVATION=derivation)
    with pytest.raises(LaunchError, match="reads outside the memory of x"):
        run(move_pointer, memory[: BLOCK - 1], out, BLOCK=BLOCK, DERIVATION=derivation)


@triton.jit
def add_one_atomically(x, BLOCK: tl.constexpr):
    tl.atomic_add(x + tl.arange(0, BLOCK), 1.0)


def test_atomics_are_checked():
    with pytest.raises(LaunchError, match=r"add_one_atomically: .* writes outside the memory of x: at byte 252 of 252"):
        run(add_one_atomically, np.zeros(BLOCK, np.float32)[:63], BLOCK=BLOCK)


@triton.jit
def double_tile(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target.store([0, 0], source.load([0, 0]) * 2)


def launch_descriptors(x, out, rows, columns):
    run(double_tile, x, out, types=("i32", "i32"), values=(rows, columns), ROWS=16, COLUMNS=16)


def test_descriptors_load_store_and_are_checked():
    x, out = aligned_zeros((10, 16)), aligned_zeros((10, 16))
    x[:] = np.arange(160).reshape(10, 16)
    launch_descriptors(x, out, 10, 16)
    np.testing.assert_array_equal(out, 2 * x)
    with pytest.raises(LaunchError, match=r"double_tile: .* reads outside the memory of x: at byte 640 of 640"):
        launch_descriptors(x, out, 11, 16)


@triton.jit
def load_without_other(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < 2))


def test_undefined_lanes_are_poisoned():
    out = np.zeros(4, np.float32)
    run(load_without_other, np.ones(4, np.float32), out, BLOCK=4)
    assert out[:2].tolist() == [1, 1]
    assert np.isnan(out[2:]).all()
    out = np.zeros(4, np.int64)
    run(load_without_other, np.ones(4, np.int64), out, BLOCK=4)
    assert (out[2:] < -(2**60)).all()


# --- Promises ---------------------------------------------------------------------------------------------------------


@triton.jit
def add_sizes(x, n, sizes):
    tl.store(x, n + sizes[1])


def launch_with_promises(x, n, sizes, divisible):
    signature = {"x": "*i32", "n": "i32", "sizes": ("i32", "i32")}
    launch(add_sizes, (1,), signature, [x, n, sizes], divisible=divisible)


def test_promises_of_alignment_are_checked():
    memory = aligned_zeros(4).view(np.int32)
    launch_with_promises(region_of(memory), 32, (16, 48), {"x": 16, "n": 16, "sizes": 16})
    assert memory[0] == 80
    with pytest.raises(LaunchError, match=r"add_sizes: x was promised to be .* 16, and is address .* \(4 more"):
        launch_with_promises(region_of(memory[1:]), 32, (16, 48), {"x": 16})
    launch_with_promises(region_of(memory[1:]), 32, (16, 48), {"n": 16, "sizes": 16})
    launch_with_promises(region_of(memory), 24, (16, 48), {"n": 8})
    with pytest.raises(LaunchError, match="n was promised to be a multiple of 8, and is 28"):
        launch_with_promises(region_of(memory), 28, (16, 48), {"n": 8})
    with pytest.raises(LaunchError, match="n was promised to be a multiple of 16, and is 33"):
        launch_with_promises(region_of(memory), 33, (16, 48), {"n": 16})
    with pytest.raises(LaunchError, match="sizes was promised to be a multiple of 16, and is 49"):
        launch_with_promises(region_of(memory), 32, (16, 49), {"sizes": 16})


def test_an_address_is_a_multiple_of_the_element_size():
    memory = np.zeros(9, np.uint8)
    with pytest.raises(
        LaunchError, match=r"add_sizes: x points to address .* is not a multiple of the element size, 4 bytes"
    ):
        launch_with_promises(region_of(memory[1 + -memory.ctypes.data % 4 :]), 32, (16, 48), {})


@triton.jit
def store_hinted(x, n):
    tl.store(x, tl.multiple_of(n, 8))


def test_hints_are_checked():
    out = np.zeros(1, np.int32)
    run(store_hinted, out, types=("i32",), values=(24,))
    assert out[0] == 24
    with pytest.raises(LaunchError, match="store_hinted: 20 was said to be a multiple of 8"):
        run(store_hinted, out, types=("i32",), values=(20,))
