"""Plan random permutations by the Fisher-Yates shuffle (`codegen/specs/shuffle.yaml`).

Schedules:

- `exchange` (CPU): one work-item takes all steps in order, 1 ns each in a cache, 7 ns each beyond (AMD EPYC, Zen 4).
- `clear`, `link`, `follow` (GPU, and CPUs with many cores): sort the partners; then every element can follow its own
  moves, because the steps that move it are those whose partner is its position. An element moves log(n) times at most,
  on average less than once.

All schedules give the same permutation. `triton/shuffle.py` builds the launches for Triton.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from . import Planned, Request
from . import sort as sorting
from .elementwise import elementwise_parts

__all__ = ["LAUNCHES", "plan"]

# The other schedule takes 43 to 49 ns of one core for each element. It has not been timed on many cores.
_MIN_CORES = 16
_MIN_PARALLEL = 1 << 22  # elements
_PARTNERS, _ORDER, _SORTED, _STEPS, _NEXT, _FIRST, _SORT_SCRATCH = range(7)  # positions of buffers
_FOLLOW_COST = 8  # cost of one element of `follow`, in units of `Step.work`


def plan(request: Request) -> Planned:
    """Plan the permutation: its layout, launches and scratch.

    Raises:
        ArgumentError: if partners is not a tensor, or the call has `out=`.
        DTypeError: if partners is neither int32 nor int64.
        ShapeError: if partners is not a contiguous vector.
    """
    partners = request.operands[0]
    if not isinstance(partners, Meta):
        raise ArgumentError(f"{request.where()}: partners must be a tensor; make one with tensor()")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    if partners.dtype not in (dtypes.int32, dtypes.int64):
        raise DTypeError(f"{request.where()}: partners must be int32 or int64; convert with .to()")
    if partners.ndim != 1 or not partners.contiguous:
        raise ShapeError(f"{request.where()}: partners must be a contiguous vector; call reshape(-1)")
    order = meta(dtypes.int64, partners.shape, None, request.device)
    n, caps = partners.numel, request.capabilities
    if not n:
        return Planned((order,))
    launch = LAUNCHES[caps.style]
    if caps.takes_runs and (caps.cores < _MIN_CORES or n < _MIN_PARALLEL):
        step = launch(request, "exchange", (_PARTNERS, _ORDER), (partners.dtype.name, "int64"), n)
        return Planned((order,), (step,))
    sort_request = Request(registry["sort_along"], (partners,), (0, False), request.device)
    sort = sorting.plan(sort_request)
    link_dtype = partners.dtype.name  # a step's number fits where a partner's does
    links = (
        ("clear", (_FIRST,), (link_dtype,)),
        ("link", (_SORTED, _STEPS, _NEXT, _FIRST), (link_dtype, "int64", link_dtype, link_dtype)),
        ("follow", (_PARTNERS, _NEXT, _FIRST, _ORDER), (link_dtype, link_dtype, link_dtype, "int64")),
    )
    positions = (_PARTNERS, _SORTED, _STEPS, *range(_SORT_SCRATCH, _SORT_SCRATCH + len(sort.scratch)))
    steps = [replace(s, buffers=tuple(positions[b] for b in s.buffers)) for s in sort.steps]
    steps += [launch(request, entry, buffers, types, n) for entry, buffers, types in links]
    scratch = (partners.nbytes, order.nbytes, partners.nbytes, partners.nbytes, *sort.scratch)
    return Planned((order,), tuple(steps), scratch)


def _opencl_step(request: Request, entry: str, buffers: tuple[int, ...], types: tuple[str, ...], n: int) -> Step:
    """Build the OpenCL launch of the kernel `entry`; `types` are the dtypes of its buffers."""
    caps = request.capabilities
    group = caps.group_size(128)
    work = n * _FOLLOW_COST
    parts = 1 if entry == "exchange" else elementwise_parts(work, caps.cores) if caps.takes_runs else n
    chunk, items = split(n, parts)
    defines = (("SCHEDULE_" + entry.upper(), "1"), ("GROUP", str(group)), ("BUFFERS", str(len(buffers))))
    slots = tuple(Slot(name, "raw") for name in types)
    kernel = Instance(request.record.name, request.text.source, f"shuffle_{entry}", "long", 1, slots, defines)
    return Step(kernel, buffers, pack_longs((n, chunk)), (-(-items // group) * group,), (group,), work)


def _triton_step(request: Request, entry: str, buffers: tuple[int, ...], types: tuple[str, ...], n: int) -> Step:
    from .triton import shuffle as triton  # lazy: Triton devices only

    return triton.step(request, entry, buffers, types, n, n * _FOLLOW_COST)


LAUNCHES = ByStyle("permutations", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
