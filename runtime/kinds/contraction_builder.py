"""Reduce a contraction to a batch of matrix products, with the copies of operands and results that this needs.

`contraction.py` parses the equation and calls `Builder.add_product`. The steps of products and copies are appended by
functions of the device: `contraction_cpu.py`, `contraction_opencl.py` or `triton/contraction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

from ..backends.protocol import Step
from ..dtypes import DType
from ..layout import collapse
from ..records import Text, registry
from . import Request
from .contraction_terms import EpilogueInputs, Gemm, Label, Strides, TensorView

__all__ = ["MAX_BATCH_DIMS", "AppendCopy", "AppendProduct", "Builder"]

MAX_BATCH_DIMS = 4  # batch dimensions of a kernel, after merging


class AppendProduct(Protocol):
    """Appends the steps of C = A B to those of the builder."""

    def __call__(self, builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView, /) -> None: ...


class AppendCopy(Protocol):
    """Appends the step of a copy to those of the builder; `Builder.add_copy` has the arguments."""

    def __call__(
        self, builder: Builder, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, parts: int,
        part_step: int, last: bool, /,
    ) -> None: ...  # fmt: skip


class Builder:
    """The steps of one call, and the scratch buffers that they need.

    In this class a batch dimension is (size, stride in A, stride in B, stride in C), as in `Gemm.batch`. Its short
    names are `size, s, t, u`.

    Attributes:
        request: The call.
        epilogue: What the op's epilogue reads; None for an op without one.
        caps: Capabilities of the device.
        sizes: Size of each label of the equation.
        element: The dtype in which the product is computed, and that scratch has.
        lanes: Elements of this dtype in a vector register.
        steps: The steps so far.
        scratch: Bytes of each scratch buffer.
        append_product: The device's function that appends the steps of a product of matrices.
        append_copy: The device's function that appends the step of a copy.
    """

    def __init__(
        self,
        request: Request,
        sizes: dict[Label, int],
        element: DType,
        epilogue: EpilogueInputs | None,
        append_product: AppendProduct,
        append_copy: AppendCopy,
    ):
        self.request = request
        self.append_product = append_product
        self.append_copy = append_copy
        self.epilogue = epilogue
        self.caps = request.capabilities
        self.sizes = sizes
        self.element = element
        self.lanes = self.caps.vector_lanes(element.itemsize)
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    def add_product(self, a: TensorView, b: TensorView, c: TensorView) -> None:
        """Append the steps of C = A B."""
        reduced_labels = [label for label, size in self.sizes.items() if size != 1 and label not in c.strides]
        if 0 in (self.sizes[label] for label in reduced_labels):  # an empty sum: store zeros
            return self.add_copy(self._copy_dims(list(c.strides), c, c), c, c, parts=0, last=True)
        a, b = self._merge_k(reduced_labels, a, b)
        gemm = self._to_gemm(a, b, c)
        if len(gemm.batch) > MAX_BATCH_DIMS:
            return self._add_product_of_copies(a, b, c)
        if self._should_swap_operands(gemm):
            a, b = b, a
            gemm = self._to_gemm(a, b, c)
        return self.append_product(self, gemm, a, b, c)

    # Reduce the contraction to matrices.

    def _classify_labels(
        self, a: TensorView, b: TensorView, c: TensorView
    ) -> tuple[list[Label], list[Label], list[Label], list[Label]]:
        """Return the labels of m, n, k and the batch.

        A dimension that an operand reads at stride 0 does not count as that operand's. A dimension that neither operand
        has goes to m or n, preferably to the one that would be empty without it.
        """
        m, n, k, batch, broadcast = [], [], [], [], []
        for label, size in self.sizes.items():
            if size == 1:
                continue
            if label not in c.strides:
                k.append(label)
            elif not a.strides.get(label) and not b.strides.get(label):
                broadcast.append(label)
            elif not b.strides.get(label):
                m.append(label)
            elif not a.strides.get(label):
                n.append(label)
            else:
                batch.append(label)
        if n or len(m) + len(batch) < 2:
            return [*m, *broadcast], n, k, batch
        return m, broadcast, k, batch

    def _merge(self, labels: list[Label], *views: TensorView) -> list[tuple[int, ...]]:
        """Merge dimensions where the strides of all views allow it.

        Returns:
            For each merged dimension its size and its stride in each view, in the order of the last view's strides.
        """
        sizes = tuple(self.sizes[label] for label in labels)
        merged, strides = collapse(sizes, [tuple(v.strides.get(label, 0) for label in labels) for v in views])
        return [(size, *(s[i] for s in strides)) for i, size in enumerate(merged)]

    def _merge_k(self, k: list[Label], a: TensorView, b: TensorView) -> tuple[TensorView, TensorView]:
        """Return A and B with k as one dimension, copying the operands whose strides prevent it."""
        if len(self._merge(k, a, b)) <= 1 or len(self._merge(k, b, a)) <= 1:  # merged in the order of B, or of A
            return a, b
        for fixed, to_pack in ((a, b), (b, a)):
            if len(self._merge(k, fixed)) <= 1:
                repacked = self.pack(to_pack, self._labels_except(k, to_pack), self._sort_by_stride(k, fixed))
                return (fixed, repacked) if fixed is a else (repacked, fixed)
        order = self._sort_by_stride(k, a)
        return self.pack(a, self._labels_except(k, a), order), self.pack(b, self._labels_except(k, b), order)

    def _labels_except(self, excluded: list[Label], view: TensorView) -> list[Label]:
        return self._sort_by_stride([x for x in view.strides if x not in excluded], view)

    def _sort_by_stride(self, labels: list[Label], view: TensorView) -> list[Label]:
        return sorted(labels, key=lambda label: -view.strides.get(label, 0))

    def _to_gemm(self, a: TensorView, b: TensorView, c: TensorView) -> Gemm:
        """Merge the dimensions of each group.

        If m or n merges to several dimensions, one of them stays and the others become batch dimensions. It is the one
        that is contiguous in the result, or else the largest.
        """
        m, n, k, batch = self._classify_labels(a, b, c)
        epilogue_tensors = self.epilogue.tensors if self.epilogue is not None else ()
        m_runs, n_runs = self._merge(m, a, c, *epilogue_tensors), self._merge(n, b, c, *epilogue_tensors)
        no_strides = (0,) * len(epilogue_tensors)
        m_run = max(m_runs, key=lambda run: (run[2] == 1, run[0]), default=(1, 0, 0, *no_strides))
        n_run = max(n_runs, key=lambda run: (run[2] == 1, run[0]), default=(1, 0, 1, *no_strides))
        k_runs = self._merge(k, a, b)
        if len(k_runs) > 1:  # `_merge_k` saw that k merges in the order of A, if not in that of B
            k_runs = [(size, s, t) for size, t, s in self._merge(k, b, a)]
        entries = self._merge(batch, a, b, c, *epilogue_tensors)
        entries += [(size, s, 0, u, *e) for size, s, u, *e in m_runs if (size, s, u, *e) != m_run]
        entries += [(size, 0, t, u, *e) for size, t, u, *e in n_runs if (size, t, u, *e) != n_run]
        epilogue_strides = tuple(
            (m_run[3 + i], n_run[3 + i], tuple(e[4 + i] for e in entries)) for i in range(len(epilogue_tensors))
        )
        k_run = k_runs[0] if k_runs else (1, 1, 1)
        m_size, am, cm, *_ = m_run
        n_size, bn, cn, *_ = n_run
        k_size, ak, bk = k_run
        batch_strides = tuple((size, s, t, u) for size, s, t, u, *_ in entries)
        return Gemm((m_size, am, cm), (n_size, bn, cn), (k_size, ak, bk), batch_strides, epilogue_strides)

    def _should_swap_operands(self, gemm: Gemm) -> bool:
        """Return True if C^T = B^T A^T fits the kernels better: they need a result that is contiguous along n."""
        (m, _, cm), (n, _, cn) = gemm.m, gemm.n
        return (n == 1 and m > 1) or (m > 1 and cm == 1 and cn != 1)

    def _add_product_of_copies(self, a: TensorView, b: TensorView, c: TensorView) -> None:
        """Append the steps of a product with too many batch dimensions: copy all three tensors to one layout."""
        m, n, k, batch = self._classify_labels(a, b, c)
        labels = [*batch, *m, *n]
        product = TensorView(self.allocate(self._numel(labels)), self.element, self._contiguous_strides(labels))
        epilogue, self.epilogue = self.epilogue, None
        self.add_product(self.pack(a, [*batch, *m], k), self.pack(b, [*batch, *n], k), product)
        self.epilogue = epilogue
        self.add_copy(self._copy_dims(labels, product, c), product, c, last=True)

    # Copy operands and results.

    def _numel(self, labels: list[Label]) -> int:
        return prod(self.sizes[label] for label in labels)

    def _contiguous_strides(self, labels: list[Label]) -> Strides:
        strides, stride = {}, 1
        for label in reversed(labels):
            strides[label] = stride
            stride *= self.sizes[label]
        return strides

    def allocate(self, count: int) -> int:
        self.scratch.append(count * self.element.itemsize)
        return len(self.request.tensors) + len(self.scratch)

    def pack(self, view: TensorView, outer: list[Label], inner: list[Label]) -> TensorView:
        """Append a step that copies `view` to scratch, contiguous in the order outer, inner. Return the copy."""
        labels = [*outer, *inner]
        packed = TensorView(self.allocate(self._numel(labels)), self.element, self._contiguous_strides(labels))
        self.add_copy([(self.sizes[x], view.strides.get(x, 0), packed.strides[x]) for x in labels], view, packed)
        return packed

    def _copy_dims(self, labels: list[Label], source: TensorView, target: TensorView) -> list[tuple[int, ...]]:
        """Return (size, stride in source, stride in target, stride in each tensor of the epilogue) of `labels`."""
        views = (source, target, *(self.epilogue.tensors if self.epilogue is not None else ()))
        return [(self.sizes[x], *(v.strides.get(x, 0) for v in views)) for x in labels]

    def add_copy(
        self, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, parts: int = 1,
        part_step: int = 0, last: bool = False,
    ) -> None:  # fmt: skip
        """Append a step that copies `source` to `target`.

        Args:
            dims: For each dimension its size, its strides in both views and, if `last`, its stride in each tensor of
                the epilogue.
            source: The tensor to read.
            target: The tensor to write.
            parts: How many sources to sum; 0 stores zeros.
            part_step: Elements from one of these sources to the next.
            last: The step stores the op's result, through the epilogue.
        """
        return self.append_copy(self, dims, source, target, parts, part_step, last)

    def text(self, epilogue: EpilogueInputs | None) -> Text:
        """Return the kernel source: the op's own, or that of `mm` for a step that leaves out the op's epilogue.

        Steps without an epilogue have the same source for all ops, so their compiled kernels are shared.
        """
        omits_epilogue = epilogue is None and self.epilogue is not None
        return registry["mm"].texts[self.request.device.driver.target] if omits_epilogue else self.request.text

    def choose_target(self, gemm: Gemm, c: TensorView, parts: int, uses_scratch: bool) -> tuple[Gemm, TensorView, int]:
        """Choose where the product writes: C, or scratch of shape `(*batch, parts, m, n)` in the compute type.

        Returns:
            The product with the strides of its target, the target, and the elements from one part to the next.
        """
        if parts == 1 and not uses_scratch:
            return gemm, c, 0
        matrix_size = gemm.m[0] * gemm.n[0]
        stride, batch = matrix_size * parts, []
        for size, s, t, _ in reversed(gemm.batch):
            batch.append((size, s, t, stride))
            stride *= size
        target = replace(
            gemm, m=(*gemm.m[:2], gemm.n[0]), n=(*gemm.n[:2], 1), batch=tuple(reversed(batch)), epilogue_strides=()
        )
        return target, TensorView(self.allocate(stride), self.element, {}), matrix_size

    def copy_to_result(
        self, gemm: Gemm, scratch_gemm: Gemm, c: TensorView, scratch: TensorView, parts: int, part_step: int
    ) -> None:
        """Append the step that copies the product from scratch to C, if it was written to scratch."""
        if scratch is c:
            return
        dims: list[tuple[int, ...]] = [
            (gemm_dim[0], scratch_dim[3], gemm_dim[3], *(e[2][i] for e in gemm.epilogue_strides))
            for i, (gemm_dim, scratch_dim) in enumerate(zip(gemm.batch, scratch_gemm.batch, strict=True))
        ]
        dims.append((gemm.m[0], scratch_gemm.m[2], gemm.m[2], *(e[0] for e in gemm.epilogue_strides)))
        dims.append((gemm.n[0], scratch_gemm.n[2], gemm.n[2], *(e[1] for e in gemm.epilogue_strides)))
        self.add_copy(dims, scratch, c, parts, part_step, last=True)

    def contiguity_along_k(self, gemm: Gemm) -> tuple[bool, bool]:
        """Return whether A, and whether B, is contiguous along k. A B that is contiguous along n too counts as False.

        Along a dimension of size 1 every stride is contiguous.
        """
        n, k = gemm.n, gemm.k
        return k[1] == 1 or k[0] == 1, (k[2] == 1 or k[0] == 1) and (n[1] != 1 or n[0] == 1)
