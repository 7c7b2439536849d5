"""Check functions that change shapes, as users call them: padding, concatenation, splitting, repetition, einsum.

The generated test suite checks single ops. This file checks the functions that are composed of several.
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest
from exact_comparison import assert_equal

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad import nn

RNG = np.random.default_rng(0)
Array = Any


def random_integers(*shape: int, dtype: str = "float32") -> Array:
    return RNG.integers(-9, 10, shape).astype(dtype)


# Padding

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def test_shapes_are_passed_by_name():
    x = wg.arange(6).reshape(shape=(2, 3))
    assert x.permute(dims=(1, 0)).shape == x.view(size=(3, 2)).shape == (3, 2)
    assert x.view(dtype=wg.int32).shape == (2, 6)
    assert x.expand(size=(4, -1, 3)).shape == (4, 2, 3)
    assert x.tile(dims=(2, 1)).shape == wg.tile(x, dims=(2, 1)).shape == (4, 3)
    for call in (lambda: x.view(3, 2, size=(3, 2)), lambda: x.permute(1, 0, dims=(1, 0)), lambda: x.tile(2, dims=(2,))):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("mode", MODES)
def test_padding_starts_at_the_last_dimension(mode: str) -> None:
    x = random_integers(2, 3, 4, 5)
    assert_equal(F.pad(wg.tensor(x), (1, 2, 3, 0), mode), np.pad(x, ((0, 0), (0, 0), (3, 0), (1, 2)), MODES[mode]))  # type: ignore[call-overload]
    assert_equal(F.pad(wg.tensor(x), (2, -1), mode) if mode == "constant" else F.pad(wg.tensor(x[0]), (2, -1), mode),
         _pad_and_crop(x if mode == "constant" else x[0], mode))  # fmt: skip


def _pad_and_crop(x: Array, mode: str) -> Array:
    """Pad the last dimension by 2 in front and crop 1 at its end; circular padding wraps after cropping."""
    lead = ((0, 0),) * (x.ndim - 1)
    if mode == "circular":
        return np.pad(x[..., :-1], (*lead, (2, 0)), "wrap")
    return np.pad(x, (*lead, (2, 0)), MODES[mode])[..., :-1]  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "float16"])
def test_padding_with_a_number(dtype: str) -> None:
    x = random_integers(3, 4).astype(dtype)
    assert_equal(F.pad(wg.tensor(x).t(), (1, 0, 0, 2), value=3), np.pad(x.T, ((0, 2), (1, 0)), constant_values=3))
    assert_equal(F.pad(wg.tensor(x), (-2, 0)), x[:, 2:])
    assert_equal(F.pad(wg.zeros(0, 2, dtype=getattr(wg, dtype)), (1, 1, 2, 0), value=1), np.ones((2, 4), dtype))


def test_padding_has_derivatives_of_any_order() -> None:
    x = wg.tensor(RNG.standard_normal((1, 2, 4)), requires_grad=True)
    for mode in MODES:
        for pad in ((3, 2), (-1, 3)):
            wg.autograd.gradgradcheck(lambda t, m=mode, p=pad: F.pad(t, p, m) ** 2, (x,))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: F.pad(x, (1, 2, 3)), RuntimeError),
        (lambda x: F.pad(x, (1,) * 6), RuntimeError),
        (lambda x: F.pad(x, (-3, -3)), RuntimeError),
        (lambda x: F.pad(x, (1, 1), "mirror"), NotImplementedError),
        (lambda x: F.pad(x, (1, 1), "reflect", 1.0), RuntimeError),
        (lambda x: F.pad(x, (5, 0), "reflect"), RuntimeError),
        (lambda x: F.pad(x, (6, 0), "circular"), RuntimeError),
        (lambda x: F.pad(x, (1, 1, 1, 1), "replicate"), NotImplementedError),
        (lambda x: F.pad(x, 1), TypeError),
        (lambda x: F.pad(x, (0.5, 1)), TypeError),
    ],
)
def test_invalid_paddings_raise(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="pad"):
        call(wg.ones(4, 5))


def test_padding_layers() -> None:
    x = random_integers(1, 2, 3, 4)
    t = wg.tensor(x)
    assert_equal(nn.ReflectionPad2d(1)(t), np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect"))
    assert_equal(nn.ReplicationPad1d((0, 2))(t[0]), np.pad(x[0], ((0, 0), (0, 0), (0, 2)), "edge"))
    assert_equal(nn.CircularPad1d(2)(t[0]), np.pad(x[0], ((0, 0), (0, 0), (2, 2)), "wrap"))
    assert_equal(nn.ConstantPad3d(1, 7.0)(t), np.pad(x, ((0, 0), (1, 1), (1, 1), (1, 1)), constant_values=7))
    assert_equal(nn.ZeroPad2d((0, 0, 1, 0))(t), np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 0))))
    assert repr(nn.ConstantPad1d(1, 2.0)) == "ConstantPad1d(padding=(1, 1), value=2.0)"
    assert repr(nn.ZeroPad2d(3)) == "ZeroPad2d((3, 3, 3, 3))"
    with pytest.raises(TypeError, match="ReflectionPad2d"):
        nn.ReflectionPad2d((1, 2))


# Products and einsum

SIZES = {"i": 3, "j": 4, "k": 5, "l": 2, "b": 2, "A": 3}

EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "ij,jk->ki", "bij,bjk->kbi", "ii->i", "ii", "ij->ji", "ij->", "i,j->ij", "ij,ij->j",
    "ij,ij", "bi,bi->b", "ij,jk,kl->il", "ijk,ilb,lkj->k", "...ij,...jk->...ik", "i...->...", "...ii->...i", "iij,jk",
    "Ai,ij", "bij,j->bi", "i,i,i->i", "ij,kl,lb->bk", "jk,ij",
)  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    shapes = [
        tuple(n for part in term.replace("...", "+") for n in ((2, 3) if part == "+" else (SIZES[part],)))
        for term in equation.partition("->")[0].split(",")
    ]
    arrays = [random_integers(*shape, dtype="float64") for shape in shapes]
    tensors = [wg.tensor(a, requires_grad=True) for a in arrays]
    expected = np.einsum(equation, *arrays)
    output = wg.einsum(equation, *tensors)
    assert_equal(output, expected)
    # The result is linear in each operand, so an operand times its gradient sums to the sum of the result.
    grads = wg.autograd.grad(output.sum(), tensors)
    for x, grad in zip(arrays, grads, strict=True):
        assert grad.shape == x.shape
        assert float((grad * wg.tensor(x)).sum()) == expected.sum()


def test_einsum_accepts_axis_numbers_and_broadcasts_size_1() -> None:
    x, y = random_integers(2, 3, 4), random_integers(4, 3, 5)
    assert_equal(wg.einsum(wg.tensor(x), [0, 1, 2], wg.tensor(y), [2, 1, 3], [3, 0]), np.einsum("abc,cbd->da", x, y))
    assert_equal(
        wg.einsum(wg.tensor(x), [..., 2], wg.tensor(y), [2, 1, 3]), np.einsum("...c,cbd->...bd", x, y[:, :, :])
    )
    assert_equal(wg.einsum("ij,jk->ik", [wg.tensor(x[0]), wg.ones(1, 2)]), np.repeat(x[0].sum(1)[:, None], 2, 1))


def test_einsum_copies_no_operand_of_a_batched_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """The equation "bij,bjk->bik" is one contraction of the operands as they are, without copies."""
    module = importlib.import_module("weftgrad.linear_algebra.contractions")
    called_ops = []
    monkeypatch.setattr(module, "call", lambda record, *rest: called_ops.append(record.name) or wg.ones(1))
    module.einsum("bij,bjk->bik", wg.ones(2, 3, 4), wg.ones(2, 4, 5))
    assert called_ops == ["einsum"]


@pytest.mark.parametrize(
    ("equation", "count"),
    [("ij,jk", 1), ("ij->ik", 1), ("ij->ii", 1), ("i1", 1), ("ijk->i", 1), ("ii->i", 1), ("...i...", 1), ("ij,ij", 2)],
)
def test_invalid_equations_raise(equation: str, count: int) -> None:
    with pytest.raises(RuntimeError, match="einsum"):
        wg.einsum(equation, *[wg.ones(2, 3), wg.ones(4, 3)][:count])


def test_products_composed_of_contractions() -> None:
    a, b, c = random_integers(2, 3), random_integers(3, 4), random_integers(4, 2)
    x, y, z = (wg.tensor(v) for v in (a, b, c))
    assert_equal(wg.tensordot(x, y, 1), a @ b)
    assert_equal(wg.tensordot(x, wg.tensor(b.T), ([1], [-1])), a @ b)
    assert_equal(wg.tensordot(x, x), np.tensordot(a, a))
    assert_equal(wg.kron(x, y), np.kron(a, b))
    assert_equal(wg.kron(x, wg.tensor(b[0])), np.kron(a, b[0]))
    assert_equal(wg.chain_matmul(x, y, z), a @ b @ c)
    assert_equal(wg.linalg.multi_dot([x[0], y, z[:, 1]]), a[0] @ b @ c[:, 1])
    assert_equal(wg.inner(x, wg.tensor(b.T)), np.inner(a, b.T))
    assert_equal(wg.vdot(x[0], y[:, 0]), a[0] @ b[:, 0])
    assert_equal(wg.outer(x[0], y[0]), np.outer(a[0], b[0]))
    assert_equal(wg.cross(x, x.flip(0)), np.cross(a, a[::-1]))
    assert_equal(wg.linalg.cross(y, y, dim=0), np.zeros((3, 4), "float32"))
    assert_equal(wg.linalg.diagonal(wg.tensor(a[None])), a[None].diagonal(axis1=1, axis2=2))
    assert_equal(wg.trace(y), np.trace(b))
    u, v, w = random_integers(5, 2), random_integers(5, 3), random_integers(4, 2, 3)
    assert_equal(F.bilinear(wg.tensor(u), wg.tensor(v), wg.tensor(w)), np.einsum("ni,oij,nj->no", u, w, v))
    out = wg.empty(3, 2).t()
    assert wg.tensordot(x, wg.tensor(np.eye(3, dtype="float32")), 1, out=out) is out
    assert_equal(out, a)
    for call in (
        lambda: wg.tensordot(x, y, 3), lambda: wg.tensordot(x, z, 1), lambda: wg.linalg.multi_dot([x]),
        lambda: wg.linalg.multi_dot([x, x]), lambda: wg.chain_matmul(x, x[0]), lambda: wg.cross(y, y, dim=1),
        lambda: wg.trace(x[0]), lambda: F.bilinear(x, y, z), lambda: wg.inner(x, y),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()


# Concatenation and splitting


def test_concatenation_and_stacking() -> None:
    a, b, v = random_integers(2, 3), random_integers(2, 1), random_integers(3)
    x, y, u = (wg.tensor(t) for t in (a, b, v))
    assert_equal(wg.cat([x, y], 1), np.concatenate([a, b], 1))
    assert_equal(wg.concat([x, wg.zeros(0), x], axis=-2), np.concatenate([a, a]))
    assert_equal(wg.hstack([u, u]), np.hstack([v, v]))
    assert_equal(wg.vstack([x, u]), np.vstack([a, v]))
    assert_equal(wg.dstack([u, u]), np.dstack([v, v]))
    assert_equal(wg.column_stack([u, u]), np.column_stack([v, v]))
    assert_equal(wg.stack([u, u], -1), np.stack([v, v], -1))
    out = wg.empty(6)[::2]
    assert wg.cat([u[:2], u[2:]], out=out) is out
    assert_equal(out, v)
    x.requires_grad_(True)
    empty = wg.zeros(0, requires_grad=True)
    grads = wg.autograd.grad(wg.cat([x, empty]).sum(), (x, empty))
    assert [g.shape for g in grads] == [(2, 3), (0,)]
    for call in (lambda: wg.cat([]), lambda: wg.stack([x, u]), lambda: wg.cat([wg.tensor(1.0)]), lambda: wg.hstack([])):
        with pytest.raises(RuntimeError):
            call()
    assert_equal(wg.meshgrid(u, u, indexing="xy"), np.meshgrid(v, v))
    with pytest.raises(RuntimeError, match="meshgrid"):
        wg.meshgrid(u, indexing="ab")


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16, 17, 40])
def test_concatenation_of_many_tensors(count: int) -> None:
    """Small tensors share launches and large ones have one each: check sizes on both sides of the limit."""
    rng = np.random.default_rng(count)
    for shape in ((3,), (2, 5), (4, 3, 17), (2, 1, 3), (3, 5000)):
        for dim in range(-len(shape), len(shape)):
            arrays = []
            for _ in range(count):
                part_shape = list(shape)
                part_shape[dim] = int(rng.integers(0, 2 * part_shape[dim] + 1))
                arrays.append(rng.standard_normal(part_shape).astype(np.float32))
            tensors = [wg.tensor(a) for a in arrays]
            assert_equal(wg.cat(tensors, dim), np.concatenate(arrays, dim))
            mixed_layouts = [wg.tensor(a.T).T for a in arrays[:1]] + tensors[1:]
            assert_equal(wg.cat(mixed_layouts, dim), np.concatenate(arrays, dim))
            mixed_dtypes = [tensors[0].to(wg.float16), *tensors[1:]]
            assert_equal(wg.cat(mixed_dtypes, dim), np.concatenate([arrays[0].astype(np.float16), *arrays[1:]], dim))
        arrays = [rng.standard_normal(shape).astype(np.float32) for _ in range(count)]
        for dim in range(-len(shape) - 1, len(shape) + 1):
            assert_equal(wg.stack([wg.tensor(a) for a in arrays], dim), np.stack(arrays, dim))


def test_small_tensors_are_concatenated_by_one_launch_for_16_tensors() -> None:
    def launches(tensors: list[wg.Tensor], dim: int = 0) -> int:
        with wg.profiler.profile() as profile:
            output = wg.cat(tensors, dim)
        assert_equal(output, np.concatenate([t.numpy() for t in tensors], dim))
        return sum(e.is_kernel for e in profile.events())

    small = [wg.tensor(random_integers(3, 4)) + i for i in range(40)]
    empty, large = wg.zeros(0, 4), [wg.ones(10000, 4)] * 3
    assert [launches(small[:n]) for n in (1, 2, 16, 17, 40)] == [1, 1, 1, 2, 3]
    assert [launches(small[:n], 1) for n in (2, 16, 17)] == [1, 1, 2]
    assert launches([empty, empty]) == 0
    assert launches(large) == 3
    # Tensors of different layouts have one launch each: planning every order of layouts would take longer than that.
    assert launches([*small[:3], wg.tensor(random_integers(2, 4))]) == 4
    assert launches([small[0].T.contiguous().T, small[1].T.contiguous().T]) == 2
    base = wg.zeros(4)
    views = [base[i : i + 1] for i in range(4)]
    base += 1  # the views must show what was written to their base
    assert_equal(wg.cat(views), np.ones(4, np.float32))


def test_gradients_of_many_concatenated_tensors() -> None:
    tensors = [wg.tensor(random_integers(2, 3), requires_grad=True) for _ in range(20)]
    weights = np.arange(120, dtype=np.float32).reshape(40, 3)
    (wg.cat(tensors) * wg.tensor(weights)).sum().backward()
    for i, t in enumerate(tensors):
        assert t.grad is not None
        assert_equal(t.grad, weights[2 * i : 2 * i + 2])
    assert wg.autograd.gradcheck(
        lambda *t: wg.stack(t, 1), [t.detach().double().requires_grad_() for t in tensors[:17]]
    )


def test_splitting_returns_views() -> None:
    x = random_integers(4, 6)
    t = wg.tensor(x)
    assert_equal(t.split(4, 1), np.split(x, [4], 1))
    assert_equal(wg.split(t, [1, 3]), np.split(x, [1]))
    assert_equal(t.chunk(4, -1), np.split(x, 3, 1))
    assert_equal(t.tensor_split(4, 1), np.array_split(x, 4, 1))
    assert_equal(wg.tensor_split(t, wg.tensor([1, 9])), np.split(x, [1, 9]))
    assert_equal(t.hsplit(3), np.hsplit(x, 3))
    assert_equal(t.vsplit([2]), np.vsplit(x, [2]))
    assert_equal(wg.tensor(x[..., None]).repeat(1, 1, 4).dsplit(2), np.dsplit(np.repeat(x[..., None], 4, 2), 2))
    t.split_with_sizes([1, 3])[1].zero_()
    assert not t[1:].any()
    for call in (
        lambda: t.split(-1), lambda: t.split([1, 2]), lambda: t.chunk(0), lambda: t.hsplit(4), lambda: t.dsplit(1),
        lambda: t[0].vsplit(1), lambda: wg.tensor(1.0).split(1), lambda: t.tensor_split(0), lambda: t.narrow(0, 3, 2),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError):
        t.split(1, 2)


# Repetition, roll, rot90 and flip


def test_repeating() -> None:
    x = random_integers(2, 3, dtype="int64")
    t = wg.tensor(x)
    assert_equal(t.repeat(2, 1, 2), np.tile(x, (2, 1, 2)))
    assert_equal(t.t().tile(2), np.tile(x.T, 2))
    assert_equal(t.repeat_interleave(2), np.repeat(x, 2))
    for counts in ([2, 0, 3], [0, 0, 0], [1, 2, 0]):
        assert_equal(wg.repeat_interleave(t, wg.tensor(counts), dim=1), np.repeat(x, counts, 1))
        assert_equal(wg.repeat_interleave(wg.tensor(counts)), np.repeat(np.arange(3), counts))
    assert_equal(t.repeat_interleave(wg.tensor([3, 1]), 0, output_size=4), np.repeat(x, [3, 1], 0))
    for call in (
        lambda: t.repeat(2), lambda: t.repeat(-1, 1), lambda: t.repeat_interleave(-1),
        lambda: t.repeat_interleave(wg.tensor([1, -1]), 0), lambda: t.repeat_interleave(wg.tensor([1, 2, 3]), 0),
        lambda: t.repeat_interleave(2, 0, output_size=5), lambda: wg.repeat_interleave(wg.tensor([1.0])),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    r = wg.tensor(RNG.standard_normal((3, 2)), requires_grad=True)
    wg.autograd.gradgradcheck(lambda v: v.repeat_interleave(wg.tensor([2, 0, 3]), 0) ** 2, (r,))


def test_roll_rot90_and_flip() -> None:
    x = random_integers(3, 4, 5)
    t = wg.tensor(x)
    for shifts, dims in ((1, 0), (-6, 2), ((1, 2), (0, 2)), ((1, 1), (1, 1)), ((3, -1, 7), (0, 1, 2))):
        assert_equal(t.roll(shifts, dims), np.roll(x, shifts, dims))
    assert_equal(wg.roll(t.permute(2, 0, 1), 7), np.roll(x.transpose(2, 0, 1), 7))
    for k, dims in itertools.product(range(-1, 4), ((0, 1), (2, 1))):
        assert_equal(wg.rot90(t, k, dims), np.rot90(x, k, dims))
    assert_equal(t.flip(0, 2), x[::-1, :, ::-1])
    assert_equal(t.fliplr(), x[:, ::-1])
    y = wg.tensor(RNG.standard_normal((2, 3)), requires_grad=True)
    wg.autograd.gradgradcheck(lambda v: v.roll((1, 1), (0, 1)) ** 2, (y,))
    for call in (
        lambda: t.roll((1, 2), 0), lambda: t.roll((1, 2)), lambda: t.rot90(1, (0, 0)), lambda: t.rot90(1, (0,)),
        lambda: t[0, 0].fliplr(), lambda: t.flip(0, 0),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError):
        t.roll(1, 3)


def test_combinations_and_cartesian_product() -> None:
    v, w = random_integers(3, dtype="int64"), random_integers(2, dtype="int64")
    assert_equal(wg.cartesian_prod(wg.tensor(v), wg.tensor(w)), np.array(list(itertools.product(v, w))))
    for r in (1, 2, 3):
        assert_equal(wg.combinations(wg.tensor(v), r), np.array(list(itertools.combinations(v, r))))
    expected = np.array(list(itertools.combinations_with_replacement(v, 2)))
    assert_equal(wg.combinations(wg.tensor(v), with_replacement=True), expected)
    with pytest.raises(RuntimeError):
        wg.combinations(wg.ones(2, 2))


# Triangles and diagonals


def test_triangles() -> None:
    x = random_integers(2, 4, 5)
    t = wg.tensor(x)
    assert_equal(t.tril(1), np.tril(x, 1))
    assert_equal(wg.triu(t.mT, -2), np.triu(x.transpose(0, 2, 1), -2))
    out = wg.empty(2, 5, 4).mT
    assert wg.tril(t, out=out) is out
    assert_equal(out, np.tril(x))
    view = t[:, ::2, 1:]
    version = t._version
    assert view.triu_() is view
    assert t._version == version + 1
    expected = x.copy()
    expected[:, ::2, 1:] = np.triu(expected[:, ::2, 1:])
    assert_equal(t, expected)
    y = wg.tensor(RNG.standard_normal((3, 3)), requires_grad=True)
    wg.autograd.gradgradcheck(lambda v: (v * v).tril_(-1) * v, (y,))
    assert_equal(wg.tril_indices(3, 4, 1), np.stack(np.tril_indices(3, 1, 4)))
    assert_equal(wg.triu_indices(4, 3, -1, dtype=wg.int32), np.stack(np.triu_indices(4, -1, 3)).astype("int32"))
    for call in (lambda: wg.tril(wg.ones(3)), lambda: wg.tril_indices(-1, 2)):
        with pytest.raises(RuntimeError):
            call()


def test_diagonals_and_scatters_into_slices() -> None:
    v, x = random_integers(3), random_integers(3, 4)
    u, t = wg.tensor(v), wg.tensor(x)
    for k in (0, 2, -1):
        assert_equal(wg.diag(u, k), np.diag(v, k))
        assert_equal(t.diag(k), np.diag(x, k))
        assert_equal(wg.diagflat(t, k), np.diagflat(x, k))
    embedded = wg.diag_embed(t, 1, 0, -1)
    assert embedded.shape == (5, 3, 5)
    assert_equal(embedded.diagonal(1, 0, -1), x)
    assert int(embedded.count_nonzero()) == np.count_nonzero(x)
    assert_equal(
        wg.diagonal_scatter(t, u), x - np.eye(3, 4, dtype="float32") * x + np.eye(3, 4, dtype="float32") * v[:, None]
    )
    changed = x.copy()
    changed[:, 1] = v
    assert_equal(wg.select_scatter(t, u, 1, 1), changed)
    changed = x.copy()
    changed[:, ::2] = v[:, None]
    assert_equal(t.slice_scatter(wg.stack([u, u], 1), 1, step=2), changed)
    assert_equal(t.narrow_copy(1, 1, 2), x[:, 1:3])
    blocks = wg.block_diag(t, u, wg.tensor(2, dtype=wg.int64))
    assert blocks.shape == (5, 8)
    assert_equal(blocks[:3, :4], x)
    assert_equal(blocks[3, 4:7], v)
    assert float(blocks.sum()) == x.sum() + v.sum() + 2
    a, b = (wg.tensor(RNG.standard_normal(s), requires_grad=True) for s in ((2, 3), (2,)))
    wg.autograd.gradgradcheck(lambda p, q: wg.diagonal_scatter(p, q) ** 2, (a, b))
    wg.autograd.gradgradcheck(lambda p, q: wg.block_diag(p, q, p) ** 2, (a, b))
    wg.autograd.gradgradcheck(lambda p: wg.diag_embed(p, -1) ** 2, (a,))
    for call in (
        lambda: wg.diag(wg.ones(1, 1, 1)), lambda: wg.diagonal_scatter(t, t), lambda: wg.select_scatter(t, t, 0, 0),
        lambda: wg.block_diag(wg.ones(1, 1, 1)), lambda: wg.diag_embed(t, 0, 1, 1),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()


def test_dimensions() -> None:
    x = random_integers(2, 3, 4)
    t = wg.tensor(x)
    assert_equal(t.movedim((0, 1), (2, 0)), np.moveaxis(x, (0, 1), (2, 0)))
    assert_equal(wg.swapdims(t, 0, -1), x.swapaxes(0, -1))
    assert_equal(t.mH, x.swapaxes(1, 2))
    assert_equal(t[0].H, x[0].T)
    assert_equal(t.adjoint(), x.swapaxes(1, 2))
    assert [wg.atleast_3d(wg.ones(*s)).shape for s in ((), (2,), (2, 3))] == [(1, 1, 1), (1, 2, 1), (2, 3, 1)]
    assert [output.shape for output in wg.atleast_2d(wg.ones(2), t)] == [(1, 2), (2, 3, 4)]
    assert wg.atleast_1d(wg.tensor(1.0)).shape == (1,)
    for call in (lambda: t.H, lambda: t[0, 0].mH, lambda: t[0, 0].mT, lambda: t.movedim((0, 1), (1,))):
        with pytest.raises(RuntimeError):
            call()


def test_channels() -> None:
    x = random_integers(2, 8, 2, 3)
    t = wg.tensor(x)
    expected = x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)
    assert_equal(nn.PixelShuffle(2)(t), expected)
    assert_equal(nn.PixelUnshuffle(2)(F.pixel_shuffle(t, 2)), x)
    assert_equal(nn.ChannelShuffle(4)(t), x.reshape(2, 4, 2, 2, 3).swapaxes(1, 2).reshape(x.shape))
    for call in (lambda: F.pixel_shuffle(t, 3), lambda: F.pixel_unshuffle(t, 2), lambda: F.channel_shuffle(t, 3)):
        with pytest.raises(RuntimeError):
            call()
