"""Plan contractions: reduce any equation of two operands to a batch of matrix products.

A dimension of both operands and the result is a batch dimension. A dimension of one operand and the result belongs to m
or n. A dimension that the result does not have belongs to k. Each group is merged to one dimension with one stride if
the layouts allow it: `...mk,kn->...mn` is a single product however many dimensions `...` has.

A step before the product copies an operand whose dimensions do not merge, or that is contiguous along none of them. A
step after it copies a result whose rows are not contiguous, or sums the parts of a split-K product. The last of these
steps applies the epilogue, if the op has one.

`contraction_terms.py` parses the equation, `contraction_plan.py` chooses the CPU and GPU schedules, and
`triton/contraction.py` plans the product for Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, ShapeError
from ..layout import collapse, pack_longs, pad_front
from ..records import Text, registry
from ..schedules import Choice, choose
from . import Planned, Request, contraction_plan
from .contraction_terms import (
    EpilogueInputs,
    Gemm,
    Label,
    Strides,
    TensorView,
    bind,
    epilogue_inputs,
    parse,
    scalar_positions,
    strides_by_label,
)
from .elementwise import compute_dtype, elementwise_parts, result_dtype

__all__ = ["COPIES", "PRODUCTS", "plan"]

_MAX_BATCH_DIMS = 4  # batch dimensions of a kernel, after merging
_MAX_OUTER_DIMS = 6  # dimensions of a copy besides its rows and columns
_ACCUMULATOR_TYPES = {"float16": dtypes.float32, "bfloat16": dtypes.float32}
_CACHE_LINE_BYTES = 64
_CACHE_WAY_BYTES = 4096  # of an L1 cache: rows at a multiple of this distance compete for one set
_MACS_PER_UNIT = 64  # multiply-adds per unit of `Step.work`: with it a product of 128³ stays on one core, and is faster
_READS_PER_UNIT = 8  # elements read per unit of `Step.work`


def plan(request: Request) -> Planned:
    """Plan one call: copies of the operands that need one, the product, and a copy of the result if it needs one.

    Raises:
        ArgumentError: An operand is not a tensor.
        ShapeError: The operands' sizes do not fit the equation, or the result does not fit `out`.
    """
    for operand, layout in zip(request.record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
    # The factors are the two operands of the product; the epilogue reads the other tensors.
    factor_names = request.record.detail.get("factors")
    factors = [
        (position, operand, layout)
        for position, (operand, layout) in enumerate(request.tensors)
        if factor_names is None or operand.name in factor_names
    ]
    terms = parse(str(request.record.detail["equation"]))
    sizes, labels = bind(request, terms, [(operand, layout) for _, operand, layout in factors])
    shape = tuple(sizes[label] for label in labels[2])
    compute_type = compute_dtype(request)
    if request.into is None:
        out = meta(result_dtype(request.record.outputs[0], compute_type, request), shape, None, request.device)
    else:
        out = request.into[0]
    if out.shape != shape:
        raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(out.shape)}")
    if not out.numel:
        return Planned((out,))
    buffers = [(position, layout) for position, _, layout in factors] + [(len(request.tensors), out)]
    views = [
        TensorView(position, layout.dtype, strides_by_label(term_labels, layout, sizes))
        for term_labels, (position, layout) in zip(labels, buffers, strict=True)
    ]
    epilogue = epilogue_inputs(request, labels[2], out, sizes)
    multiplies_half = request.capabilities.kernel_style.multiplies_half
    builder = _Builder(
        request, sizes, compute_type if multiplies_half else _ACCUMULATOR_TYPES.get(compute_type.name, compute_type),
        epilogue,
    )  # fmt: skip
    builder.add_product(*views)
    return Planned((out,), tuple(builder.steps), tuple(builder.scratch))


class _Builder:
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
    """

    def __init__(self, request: Request, sizes: dict[Label, int], element: DType, epilogue: EpilogueInputs | None):
        self.request = request
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
            return self._add_copy(self._copy_dims(list(c.strides), c, c), c, c, parts=0, last=True)
        a, b = self._merge_k(reduced_labels, a, b)
        gemm = self._to_gemm(a, b, c)
        if len(gemm.batch) > _MAX_BATCH_DIMS:
            return self._add_product_of_copies(a, b, c)
        if self._should_swap_operands(gemm):
            a, b = b, a
            gemm = self._to_gemm(a, b, c)
        return PRODUCTS[self.caps.style](self, gemm, a, b, c)

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
                repacked = self._pack(to_pack, self._labels_except(k, to_pack), self._sort_by_stride(k, fixed))
                return (fixed, repacked) if fixed is a else (repacked, fixed)
        order = self._sort_by_stride(k, a)
        return self._pack(a, self._labels_except(k, a), order), self._pack(b, self._labels_except(k, b), order)

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
        product = TensorView(self._allocate(self._numel(labels)), self.element, self._contiguous_strides(labels))
        epilogue, self.epilogue = self.epilogue, None
        self.add_product(self._pack(a, [*batch, *m], k), self._pack(b, [*batch, *n], k), product)
        self.epilogue = epilogue
        self._add_copy(self._copy_dims(labels, product, c), product, c, last=True)

    # Copy operands and results.

    def _numel(self, labels: list[Label]) -> int:
        return prod(self.sizes[label] for label in labels)

    def _contiguous_strides(self, labels: list[Label]) -> Strides:
        strides, stride = {}, 1
        for label in reversed(labels):
            strides[label] = stride
            stride *= self.sizes[label]
        return strides

    def _allocate(self, count: int) -> int:
        self.scratch.append(count * self.element.itemsize)
        return len(self.request.tensors) + len(self.scratch)

    def _pack(self, view: TensorView, outer: list[Label], inner: list[Label]) -> TensorView:
        """Append a step that copies `view` to scratch, contiguous in the order outer, inner. Return the copy."""
        labels = [*outer, *inner]
        packed = TensorView(self._allocate(self._numel(labels)), self.element, self._contiguous_strides(labels))
        self._add_copy([(self.sizes[x], view.strides.get(x, 0), packed.strides[x]) for x in labels], view, packed)
        return packed

    def _copy_dims(self, labels: list[Label], source: TensorView, target: TensorView) -> list[tuple[int, ...]]:
        """Return (size, stride in source, stride in target, stride in each tensor of the epilogue) of `labels`."""
        views = (source, target, *(self.epilogue.tensors if self.epilogue is not None else ()))
        return [(self.sizes[x], *(v.strides.get(x, 0) for v in views)) for x in labels]

    def _add_copy(
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
        return COPIES[self.caps.style](self, dims, source, target, parts, part_step, last)

    def add_opencl_copy(
        self, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, parts: int, part_step: int,
        last: bool,
    ) -> None:  # fmt: skip
        """Append the step of `_add_copy` in OpenCL: merge the dimensions, choose the rows and columns of its loop."""
        epilogue = self.epilogue if last else None
        views = (source, target, *(epilogue.tensors if epilogue else ()))
        sizes, strides = collapse(tuple(d[0] for d in dims), [tuple(d[1 + i] for d in dims) for i in range(len(views))])
        # Runs are merged dimensions: (size, stride in source, stride in target, strides in the epilogue's tensors).
        runs = list(zip(sizes, *strides, strict=True)) or [(1,) * (1 + len(views))]
        total = prod(size for size, *_ in runs)
        column = runs.pop()  # the target's innermost run; the row is a run in which the source is contiguous, if any
        source_contiguous = [r for r in runs if r[1] == 1 and r[0] > 1]
        transposes = bool(source_contiguous) and column[1] != 1 and column[2] == 1 and parts == 1 and epilogue is None
        row = source_contiguous[0] if source_contiguous else runs[-1] if runs else (1, *(0,) * (len(column) - 1))
        if runs:
            runs.remove(row)
        if len(runs) > _MAX_OUTER_DIMS:
            message = f"more than {_MAX_OUTER_DIMS + 2} dimensions that do not merge; call .contiguous() first"
            raise ShapeError(f"{self.request.where()}: {message}")
        outer = total // (column[0] * row[0])
        mode = 1 if transposes else 0 if column[1] == column[2] == 1 else 2  # the template says what each mode does
        tasks = elementwise_parts(total, self.caps.cores)
        outer_chunk = _ceil(outer, tasks)
        row_chunk = _ceil(row[0], _ceil(tasks, _ceil(outer, outer_chunk)))
        row_chunk = _ceil(row_chunk, self.lanes) * self.lanes if transposes else row_chunk
        geometry = pack_longs((
            row[0], column[0], *row[1:3], *column[1:3], parts, part_step, row_chunk, outer, outer_chunk,
            *pad_front([r[0] for r in runs], _MAX_OUTER_DIMS, 1), *pad_front([r[1] for r in runs], _MAX_OUTER_DIMS, 0),
            *pad_front([r[2] for r in runs], _MAX_OUTER_DIMS, 0), *row[3:], *column[3:],
            *(x for i in range(3, len(column)) for x in pad_front([r[i] for r in runs], _MAX_OUTER_DIMS, 0)),
        ))  # fmt: skip
        slots, buffers = tuple(Slot(v.dtype.name) for v in views), tuple(v.buffer for v in views)
        global_size: tuple[int, ...]
        local_size: tuple[int, ...]
        if not self.caps.takes_runs:  # a GPU: one work-item per element
            group = min(128, self.caps.max_group)
            instance = self._instance("spread", slots, (), epilogue, column[3:])
            global_size, local_size = (_ceil(total, group) * group,), (group,)
        else:
            instance = self._instance("move", slots, (("MOVE", str(mode)),), epilogue, column[3:])
            global_size, local_size = (_ceil(row[0], row_chunk), _ceil(outer, outer_chunk)), (1, 1)
        work = total * max(parts, 1)
        self.steps.append(Step(instance, buffers, geometry, global_size, local_size, work, scalar_positions(epilogue)))

    def text(self, epilogue: EpilogueInputs | None) -> Text:
        """Return the kernel source: the op's own, or that of `mm` for a step that leaves out the op's epilogue.

        Steps without an epilogue have the same source for all ops, so their compiled kernels are shared.
        """
        omits_epilogue = epilogue is None and self.epilogue is not None
        return registry["mm"].texts[self.request.device.driver.target] if omits_epilogue else self.request.text

    def _instance(
        self, entry: str, slots: tuple[Slot, ...], defines: tuple[tuple[str, str], ...],
        epilogue: EpilogueInputs | None = None, n_strides: Sequence[int] = (),
    ) -> Instance:  # fmt: skip
        """Return the kernel `entry`. n_strides: strides along n of the tensors that the epilogue reads."""
        text = self.text(epilogue)
        # EXTRA0, EXTRA1, …: how the epilogue loads a tensor: 0 one value for the row, 1 a vector, 2 strided elements.
        stride_classes = ((f"EXTRA{i}", str(step if step in (0, 1) else 2)) for i, step in enumerate(n_strides))
        defines = ((f"SCHEDULE_{entry.upper()}", "1"), *defines, *stride_classes)
        # Named for the kind and not for the op: ops with equal source share a compiled kernel.
        return Instance(
            "contraction", text.source, f"contraction_{entry}", self.element.compute, self.lanes, slots, defines,
            text.functions,
        )  # fmt: skip

    # Plan products for CPUs and GPUs.

    def _choose_target(self, gemm: Gemm, c: TensorView, parts: int, uses_scratch: bool) -> tuple[Gemm, TensorView, int]:
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
        return target, TensorView(self._allocate(stride), self.element, {}), matrix_size

    def _copy_to_result(
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
        self._add_copy(dims, scratch, c, parts, part_step, last=True)

    def _contiguity_along_k(self, gemm: Gemm) -> tuple[bool, bool]:
        """Return whether A, and whether B, is contiguous along k. A B that is contiguous along n too counts as False.

        Along a dimension of size 1 every stride is contiguous.
        """
        n, k = gemm.n, gemm.k
        return k[1] == 1 or k[0] == 1, (k[2] == 1 or k[0] == 1) and (n[1] != 1 or n[0] == 1)

    def add_cpu_product(self, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
        """Append the steps of a product on a CPU: copies of A and B that pay, the product, and a copy of its result."""
        if (points := self._points_schedule(gemm, a, b, c)) is not None:
            return self._add_cpu_launch(gemm, a, b, c, points, False, 1, 0)
        if gemm.n[0] > 1 and gemm.n[1] != 1 and (gemm.k[0] == 1 or gemm.k[2] != 1):
            gemm, b = self._repack_b(gemm, b)
        a_along_k, b_along_k = self._contiguity_along_k(gemm)
        converts = a.dtype.storage != self.element.storage
        product = contraction_plan.Product(
            gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k, converts
        )
        if contraction_plan.should_repack_b(product, self.lanes):  # along k: B is the A of the transposed product
            transposed_gemm, b = self._repack_a(gemm.transposed(), b)
            return self.add_cpu_product(transposed_gemm.transposed(), a, b, c)
        params = self._schedule_params(product)
        schedule = contraction_plan.choose(product, self.caps, self.lanes, params)
        if contraction_plan.should_transpose_result(product, self.caps, self.lanes, params):
            transposed = gemm.transposed()
            if not schedule.packed_ahead or (self.epilogue is None and not self._rows_share_cache_set(transposed)):
                return self.add_cpu_product(transposed, b, a, c)  # it copies its result instead of A
        # Kernels with B packed ahead need an A along k; kernels that pack A themselves need one along k or m.
        needs_copy = not a_along_k if schedule.packed_ahead else schedule.block and not a_along_k and gemm.m[1] != 1
        if schedule.transpose_a or needs_copy or (schedule.packed_ahead and self._rows_share_cache_set(gemm)):
            gemm, a = self._repack_a(gemm, a)
        if schedule.packed_ahead:
            gemm, b = self._pack_b_in_panels(gemm, b, schedule.nv, b_along_k)
        # Without `schedule.block`, sums over several blocks of k accumulate in C, or in scratch if C would round them.
        accumulates_in_c = schedule.name == "gemm" and not schedule.block and gemm.k[0] > schedule.kc
        uses_scratch = (gemm.n[0] > 1 and gemm.n[2] != 1) or (
            accumulates_in_c and c.dtype.storage != self.element.storage
        )
        target, target_view, part_step = self._choose_target(gemm, c, schedule.parts, uses_scratch)
        columns = _ceil(target.n[0], schedule.columns)
        self._add_cpu_launch(target, a, b, target_view, schedule, b_along_k, columns, part_step)
        self._copy_to_result(gemm, target, c, target_view, schedule.parts, part_step)

    def _points_schedule(
        self, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView
    ) -> contraction_plan.Schedule | None:
        """Return the schedule `points`, for many short rows, or None.

        It requires that A and the result are row-major contiguous, and that all dtypes are the compute type's.
        """
        (m, am, cm), (n, _, cn), (k, ak, _) = gemm.m, gemm.n, gemm.k
        if (am, ak, cm, cn) != (k, 1, n, 1) or any(v.dtype.storage != self.element.storage for v in (a, b, c)):
            return None
        product = contraction_plan.Product(m, n, k, gemm.entries, True, False)
        return contraction_plan.points_schedule(product, self.caps, self._schedule_params(product))

    def _schedule_params(self, product: contraction_plan.Product) -> Choice:
        """Return the schedule parameters of the product, from the user's tuned file or the shipped defaults.

        The key has sizes, dtype and layout, but not the op: `mm`, `linear` and `einsum` share the parameters.
        """
        sizes = {"m": product.m, "n": product.n, "k": product.k, "batch": product.batch}
        # N: row-major, T: transposed, *: loads of A convert its dtype
        layout = ("N" if product.a_along_k else "T") + ("T" if product.b_along_k else "N") + "*" * product.converts
        return choose(self.request, "contraction", sizes, self.element.name, "product", layout)

    def _repack_a(self, gemm: Gemm, a: TensorView) -> tuple[Gemm, TensorView]:
        """Copy A so that it is contiguous along k. Batch entries that share A share the copy."""
        (m, am, cm), (k, ak, bk) = gemm.m, gemm.k
        row_stride = k + self.lanes if k % 256 == 0 else k  # rows at a power-of-two stride map to one cache set
        numel, batch = m * row_stride, []
        dims = [(m, am, row_stride), (k, ak, 1)]
        for size, s, t, u in reversed(gemm.batch):
            batch.append((size, numel if s else 0, t, u))
            if s:
                dims.insert(0, (size, s, numel))
                numel *= size
        packed = TensorView(self._allocate(numel), self.element, {})
        self._add_copy(dims, a, packed)
        return replace(gemm, m=(m, row_stride, cm), k=(k, 1, bk), batch=tuple(reversed(batch))), packed

    def _repack_b(self, gemm: Gemm, b: TensorView) -> tuple[Gemm, TensorView]:
        """Copy B so that it is contiguous along n. Batch entries that share B share the copy."""
        (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
        numel, batch = n * k, []
        dims = [(k, bk, n), (n, bn, 1)]
        for size, s, t, u in reversed(gemm.batch):
            batch.append((size, s, numel if t else 0, u))
            if t:
                dims.insert(0, (size, t, numel))
                numel *= size
        packed = TensorView(self._allocate(numel), self.element, {})
        self._add_copy(dims, b, packed)
        return replace(gemm, n=(n, 1, cn), k=(k, ak, n), batch=tuple(reversed(batch))), packed

    def _rows_share_cache_set(self, gemm: Gemm) -> bool:
        """Return whether neighbouring rows of A, contiguous along k, map to one cache set."""
        return (gemm.m[1] * self.element.itemsize + _CACHE_LINE_BYTES) % _CACHE_WAY_BYTES <= 2 * _CACHE_LINE_BYTES

    def _pack_b_in_panels(self, gemm: Gemm, b: TensorView, vectors: int, along_k: bool) -> tuple[Gemm, TensorView]:
        """Pack B in panels of k rows by `vectors` vectors of columns. `along_k`: B is contiguous along k.

        In the returned product, B's stride along k leads to the next row of a panel, its stride along n to the next
        panel.
        """
        (n, bn, cn), (k, ak, bk) = gemm.n, gemm.k
        width, depth = vectors * self.lanes, _ceil(k, self.lanes) * self.lanes
        panel = width * (depth + (depth % 256 == 0))  # a spare row keeps panels from competing for one cache set
        packed = TensorView(self._allocate(_ceil(n, width) * panel), self.element, {})
        # Work-items read contiguous memory: whole panels if B is contiguous along k, else strips of rows.
        units, quantum = (_ceil(n, width), 1) if along_k else (k, self.lanes)
        chunk = _ceil(_ceil(units, 4 * self.caps.cores), quantum) * quantum
        defines = (("NV", str(vectors)), ("TB", str(int(along_k))))
        instance = self._instance("pack_b", (Slot(packed.dtype.name), Slot(b.dtype.name)), defines)
        geometry = pack_longs((n, k, bk, bn, panel, chunk))
        size = (_ceil(units, chunk), 1, 1)
        self.steps.append(Step(instance, (packed.buffer, b.buffer), geometry, size, (1, 1, 1), n * k))
        return replace(gemm, n=(n, panel, cn), k=(k, ak, width)), packed

    def _add_cpu_launch(
        self, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView, schedule: contraction_plan.Schedule,
        b_along_k: bool, columns: int, part_step: int,
    ) -> None:  # fmt: skip
        entries = gemm.entries * schedule.parts
        block = _ceil(schedule.depth, _ceil(schedule.depth, schedule.kc))
        block = min(_ceil(block, self.lanes) * self.lanes, schedule.kc)
        geometry = self._geometry(
            gemm, schedule.rows, schedule.columns, block, schedule.depth, schedule.entries, schedule.parts, part_step
        )
        defines: tuple[tuple[str, str], ...] = (("MR", str(schedule.mr)), ("NV", str(schedule.nv)))
        if schedule.name == "gemm":
            converts = c.dtype.storage != self.element.storage
            flags = {
                "KC": schedule.kc,
                "PACK": schedule.pack,
                "TB": b_along_k,
                "CONVERTS": converts,
                "AROWS": schedule.block,
                "PACKED_AHEAD": schedule.packed_ahead,
            }
            if schedule.block:
                flags |= {"PANELS": schedule.panels, "TA": gemm.k[1] != 1}
            else:
                flags["ALONG_K"] = gemm.k[1] == 1 or gemm.k[0] == 1
            defines += tuple((name, str(int(value))) for name, value in flags.items())
        size = (columns, _ceil(gemm.m[0], schedule.rows), _ceil(entries, schedule.entries))
        self._add_step(schedule.name, defines, (a, b, c), geometry, size, (1, 1, 1), gemm, part_step)

    def add_gpu_product(self, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
        """Append the steps of a product on an OpenCL GPU: one work-group per tile of the result."""
        a_along_k, b_along_k = self._contiguity_along_k(gemm)
        product = contraction_plan.Product(gemm.m[0], gemm.n[0], gemm.k[0], gemm.entries, a_along_k, b_along_k)
        tile = contraction_plan.choose_tile(product, self.caps, self.element.itemsize, self._schedule_params(product))
        target, target_view, part_step = self._choose_target(gemm, c, tile.parts, False)
        rows, columns = tile.gy * tile.tm, tile.gx * tile.tn
        flags = {"GX": tile.gx, "GY": tile.gy, "TM": tile.tm, "TN": tile.tn, "KC": tile.kc}
        defines = tuple((name, str(value)) for name, value in flags.items())
        geometry = self._geometry(target, rows, columns, tile.kc, tile.depth, 1, tile.parts, part_step)
        group = tile.gx * tile.gy
        groups = _ceil(gemm.m[0], rows) * _ceil(gemm.n[0], columns)
        size = (groups * group, gemm.entries * tile.parts)
        self._add_step("tile", defines, (a, b, target_view), geometry, size, (group, 1), target, part_step)
        self._copy_to_result(gemm, target, c, target_view, tile.parts, part_step)

    @staticmethod
    def _geometry(
        gemm: Gemm, rows: int, columns: int, block: int, depth: int, entries: int, parts: int, part_step: int
    ) -> bytes:
        """Return the struct `Geometry` of a product's kernel; templates/opencl/contraction.cl.j2 has its fields."""
        (m, am, cm), (n, bn, cn), (k, ak, bk) = gemm.m, gemm.n, gemm.k
        batch = [pad_front([d[i] for d in gemm.batch], _MAX_BATCH_DIMS, int(i == 0)) for i in range(4)]
        return pack_longs((
            m, n, k, am, ak, bk, bn, cm, cn, rows, columns, block, depth, entries, parts,
            part_step, gemm.entries * parts,
            *(x for table in batch for x in table),
            *(e[0] for e in gemm.epilogue_strides), *(e[1] for e in gemm.epilogue_strides),
            *(x for e in gemm.epilogue_strides for x in pad_front(e[2], _MAX_BATCH_DIMS, 0)),
        ))  # fmt: skip

    def _add_step(
        self, entry: str, defines: tuple[tuple[str, str], ...], views: tuple[TensorView, ...], geometry: bytes,
        size: tuple[int, ...], local: tuple[int, ...], gemm: Gemm, part_step: int,
    ) -> None:  # fmt: skip
        epilogue = None if part_step else self.epilogue  # the copy from scratch applies the epilogue
        views = (*views, *(epilogue.tensors if epilogue else ()))
        slots = tuple(Slot(v.dtype.name) for v in views)
        instance = self._instance(entry, slots, defines, epilogue, [e[1] for e in gemm.epilogue_strides])
        m, n, k = gemm.m[0], gemm.n[0], gemm.k[0]
        work = gemm.entries * max(m * n * k // _MACS_PER_UNIT, (m * k + k * n) // _READS_PER_UNIT, m * n)
        self.steps.append(
            Step(instance, tuple(v.buffer for v in views), geometry, size, local, work, scalar_positions(epilogue))
        )


def _add_triton_product(builder: _Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
    from .triton import contraction  # lazy: Triton devices only

    contraction.add_product(builder, gemm, a, b, c)


def _add_triton_copy(
    builder: _Builder, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, parts: int,
    part_step: int, last: bool,
) -> None:  # fmt: skip
    from .triton import contraction  # lazy: Triton devices only

    contraction.add_copy(builder, dims, source, target, parts, last)


PRODUCTS = ByStyle(
    "contractions", cpu=_Builder.add_cpu_product, gpu=_Builder.add_gpu_product, triton=_add_triton_product
)
COPIES = ByStyle(
    "copies of contractions", cpu=_Builder.add_opencl_copy, gpu=_Builder.add_opencl_copy, triton=_add_triton_copy
)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
