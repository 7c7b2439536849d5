"""Run every template and schedule under oclgrind: no access out of bounds, no data race, no uninitialised read.

The tests need oclgrind. They check that its log is empty, because its exit status does not report errors. Limits of
oclgrind 21.10 shape the scripts:

- Kernels fill the inputs, because it treats host writes at an offset into a buffer as missing.
- Optimisation is off, because its interpreter lacks instructions that clang's optimiser and inliner emit (`freeze`,
  `noalias.scope.decl`).
- Vectors have 8 lanes, because it treats shuffles of 16 as uninitialised. Shuffles of two vectors are left out.
- All memory is allocated before any kernel is built. Its record of a buffer (`ShadowMemory`, in the plugin
  Uninitialized) keeps its length when a larger buffer reuses the number of a released one, for example that of a
  program's constants. Writes past the old length then count as missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed"),
    pytest.mark.thorough,
]

PROLOGUE = """
import weftgrad as wg
from weftgrad._generated import ops

o = wg.device("opencl:0")
assert "Oclgrind" in o.driver.name, o.driver.name
for size in (1 << 20, 8):  # allocate and free: the segments of large and small blocks that the rest of the script uses
    wg.empty(size, dtype=wg.uint8, device=o)
reserved = wg.memory_stats(o)["driver_allocations"]

def full(*shape, value=0.5, dtype=wg.float32):
    return wg.full(shape, value, dtype=dtype, device=o)
"""

EPILOGUE = """
wg.synchronize(o)
assert wg.memory_stats(o)["driver_allocations"] == reserved, "allocate more memory before the first kernel"
print("done")
"""

MAIN_SCRIPT = """
for dtype in (wg.float32, wg.float16, wg.int32, wg.bool):
    x, y = full(5, 37, value=1, dtype=dtype), full(5, 37, value=1, dtype=dtype)
    ops.add(x, y); ops.add(x, y[:1]); ops.add(x.t(), y.t()); ops.add(x[:, ::2], y[:, ::2]); ops.add(x[:, :1], y[:, 1:])
full(50, 3) * full(3); full(41, 5)[1:] - full(5); full(2, 3, 5, 41).permute(0, 2, 3, 1).contiguous()
for exponent in (2, 0.5, 1.7, -2):
    full(5, 37) ** exponent
wg.arange(37, device=o); wg.arange(0, 5, 0.3, device=o); wg.linspace(0, 1, 41, device=o)
ops.mm(full(300, 3), full(3, 4)); ops.mm(full(257, 8), full(5, 8).t())
x = full(5, 37)
for name in ("exp", "sigmoid", "tanh", "sqrt", "isnan", "floor", "erf"):
    getattr(ops, name)(x)
ops.where(x > 0.1, x, 2.0); ops.lerp(x, x, 0.3); x.add_(1); x[1:, 2:].mul_(2)
for shape in ((5, 37), (1, 700), (300, 3), (258, 19), (3, 4, 5)):
    z = full(*shape)
    for dim in (None, *range(len(shape))):
        ops.sum(z, dim); ops.amax(z, dim); ops.any(z > 1, dim)
    ops.max_dim(z, -1); ops.argmax(z.transpose(0, -1), 0); z.var(-1)
for n in (1, 5, 37, 130):
    r, w = full(3, n), full(n)
    ops.softmax(r, 1); ops.softmax(r, 0); ops.log_softmax(r.t(), 0)
    ops.layer_norm(r, (n,), w, w); ops.rms_norm(r, (n,), w)
style = o.driver.capabilities.style
narrow = ((9, 5, 40), (3, 20, 4), (40, 6, 3), (2, 300, 7)) if style == "cpu" else ()
for m, k, n in ((1, 1, 1), (5, 37, 20), (33, 17, 65), *narrow):
    a, b = full(m, k), full(k, n)
    ops.mm(a, b); ops.mm(a, full(n, k).t()); ops.mm(full(k, m).t(), b); ops.matmul_batched(full(2, m, k), b)
from weftgrad.runtime.kinds import contraction_plan
# Small matrices use the schedules of large matrices.
contraction_plan._limits = contraction_plan.GemmLimits(
    pack_row_major_a_elements=0, pack_converted_a_elements=0, transpose_a_elements=0, packed_ahead_min_rows=(0, 0)
)
a, b = full(137, 19), full(19, 131)
ops.mm(a, b); ops.mm(full(19, 137).t(), b); ops.mm(a, full(131, 19).t())
ops.mm(full(137, 19, dtype=wg.float16), b.half())
for define in (("AROWS", "264"), ("PACKED_AHEAD", "1")):
    assert any(define in i.defines for i in o.driver.compiler._programs) == (style == "cpu")
p = full(4, 37); p.requires_grad_()
q = full(37, 3); q.requires_grad_()
((ops.softmax(p @ q, 1) * 2).exp() + q[:1]).sum().backward()
x, index = full(5, 7), full(3, 7, value=1, dtype=wg.int64)
wg.gather(x, 0, index); wg.index_select(x, 0, index[0]); x[index[0]]; x[:, 2:].clone(); wg.cat([x, x], 1)
wg.scatter_add(x, 0, index, full(3, 7)); x[x > 0.1]; x[index[0], 1] = 3.0
image, weight = full(2, 2, 6, 7), full(3, 2, 3, 3)
image.requires_grad_(); weight.requires_grad_()
wg.nn.functional.conv2d(image, weight, stride=2, padding=1).sum().backward()
f = wg.nn.functional
channels = 16 if style == "cpu" else 1  # 16 use vectors of channels
for images, kernel, step, pad, groups in (
    ((2, channels, 5, 27), (24, channels, 3, 3), 1, 1, 1), ((2, channels, 4, 28), (16, channels, 2, 2), 2, 0, 1),
    ((2, 2, 5, 19), (6, 1, 3, 3), 1, 1, 2),
)[: 3 if style == "cpu" else 1]:
    x, w = full(*images), full(*kernel)
    x.requires_grad_(); w.requires_grad_()
    y = f.conv2d(x, w, stride=step, padding=pad, groups=groups)
    y.backward(full(*y.shape))
for size, step in ((2, 2), (3, 1), (3, 3)):
    planes = full(1, 2, 5, 23)
    planes.requires_grad_()
    f.max_pool2d(planes, size, step, 1).sum().backward(); f.avg_pool2d(planes, size, step, 1).sum().backward()
    f.adaptive_avg_pool2d(planes, (3, 7))
    f.fold(f.unfold(planes, size, 1, 1, step), (5, 23), size, 1, 1, step).sum().backward()
for n in (5, 21, 1):
    ops.resample(full(2, 2, 4, 7), full(n, value=2, dtype=wg.int64), full(3, n), 3)
for shape, sizes in (((2, 2, 4, 5), (3, 7)), ((1, 2, 2, 3, 4), (1, 2, 5))):
    x, grid, grad = full(*shape), full(shape[0], *sizes, len(sizes), value=0.3), full(*shape[:2], *sizes)
    modes = ("bilinear", "zeros", True), ("nearest", "border", False), ("bicubic", "reflection", False)
    for options in modes[: 3 if style == "cpu" and len(sizes) == 2 else 1]:
        ops.sample_grid(x, grid, *options)
        ops.sample_grid_input(grad, grid, shape, *options); ops.sample_grid_places(grad, x, grid, *options)
if style == "cpu":  # all time steps in one kernel
    wg.nn.LSTM(5, 16, bidirectional=True, device=o)(full(4, 33, 5))[0].sum().backward()
F = wg.nn.functional
F.adaptive_max_pool2d(full(2, 3, 5, 7), 1); F.pad(full(3, 29), (1, 2))
index = full(12, value=1, dtype=wg.int64)
F.embedding_bag(index, full(5, 37), index[:3] - 1, mode="mean")
F.pad(image, (3, 2, 1, 4), "reflect").sum().backward(); F.pad(image, (3, 2, -1, 4), value=1.0)
wg.tril(full(3, 5, 21), 1); wg.triu(full(2, 21, 5).mT, -1)
p, q = full(2, 7, 9), full(2, 19, 9, value=0.25)
p.requires_grad_(); q.requires_grad_()
wg.cdist(p, q).sum().backward(); wg.cdist(p, q, float("inf")).sum().backward()
q, k, v = full(1, 2, 5, 3), full(1, 1, 18, 3), full(1, 1, 18, 2)
q.requires_grad_(); k.requires_grad_(); v.requires_grad_()
f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sum().backward()
mask = full(5, 18) > 0
f.scaled_dot_product_attention(q, k, v, mask, dropout_p=0.5, enable_gqa=True).sum().backward()
for shape, dim in (((5, 37), 1), ((5, 19), 0), ((2000,), 0), ((256, 3), 1)):
    z = full(*shape)
    z.requires_grad_()
    z.cumsum(dim).sum().backward()
    if dim:
        (z.cumprod(dim) + z.cummax(dim).values + z.logcumsumexp(dim)).sum().backward()
wg.cat([full(3, 5), full(2, 5), full(1, 5)]); wg.stack([full(2, 19)] * 5, 1)
ops.add(full(37, 21), full(21, 37).t()); wg.topk(full(2, 400), 31)
wg.rand(5, 7, device=o); wg.randn(9, device=o); wg.nn.functional.dropout(x, 0.5)
from weftgrad.runtime.kinds import sort as sorting
sorting._WHOLE_ROW_MAX, sorting._MIN_PART = 60, 100  # short rows use the schedules of long rows
row = full(1, 530, value=528, dtype=wg.int16)
wg.sort(row); wg.topk(row, 3); wg.sort(full(3, 20).t(), 0); wg.searchsorted(row[0], row)
"""


# Runs without the check of uninitialised reads: the host writes tables of positions and weights at an offset.
HOST_TABLES_SCRIPT = """
planes = full(1, 2, 5, 23)
planes.requires_grad_()
wg.nn.functional.adaptive_avg_pool2d(planes, (3, 7)).sum().backward()
from weftgrad.runtime.multi_tensor import MultiTensor
from weftgrad.runtime.records import registry
update = MultiTensor(registry["sgd_momentum_step"])
for value in (1.0, 2.0):
    update([[full(n, value=value) for n in (1, 37, 16, 2000)] for _ in range(3)], (0.1, 0.9, 1.0, 0.1, 1.0))
from weftgrad.runtime.multi_reduction import MultiReduction
MultiReduction(registry["euclidean_norm"])([full(n) for n in (1, 37, 16, 2000)])
"""


@pytest.mark.parametrize("style", ["style=gpu,lanes=4,max_group=64", "style=cpu,lanes=8"], ids=["gpu", "cpu"])
@pytest.mark.parametrize("script", [MAIN_SCRIPT, HOST_TABLES_SCRIPT], ids=["main", "host tables"])
def test_kernels_are_clean(script: str, style: str, tmp_path: Path) -> None:
    log = tmp_path / "oclgrind.log"
    environment = os.environ | {"WEFTGRAD_CAPABILITIES": style, "WEFTGRAD_CACHE": "off"}
    command = [
        "oclgrind",
        "--build-options",
        "-cl-opt-disable -DWG_INLINE= -DWG_PREFETCH(place)= -DWG_NO_SHUFFLES",
        "--data-races",
        *(["--uninitialized"] if script is not HOST_TABLES_SCRIPT else []),
        "--log",
        str(log),
    ]
    process = subprocess.run(
        [*command, sys.executable, "-c", PROLOGUE + script + EPILOGUE],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    log_text = log.read_text() if log.exists() else ""
    assert process.stdout.strip().endswith("done"), f"{style}: {process.stderr[-3000:]}\n{log_text[:3000]}"
    assert not log_text.strip(), f"{style}: oclgrind reports:\n{log_text[:4000]}"
