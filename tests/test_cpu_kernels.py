"""Check how `cpu` gets its kernels: programs, object cache and background compilation."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_kernel_running import TEXT, instance, run

import weftgrad as wg
from weftgrad.runtime import cache, program
from weftgrad.runtime.backends import processor
from weftgrad.runtime.backends.cpu import driver, objects
from weftgrad.runtime.backends.cpu.kernels import ClangKernels
from weftgrad.runtime.backends.protocol import Instance
from weftgrad.runtime.errors import CompileError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> objects.ObjectStore:
    """Open an object store with an empty cache folder of its own."""
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path / "cache"))
    notes: list[str] = []
    object_store = objects.open_store(driver.capabilities_here(), notes)
    if object_store is None:
        pytest.skip(f"no clang here: {notes}")
    return object_store


# Programs


def test_every_instance_has_a_name_of_its_own() -> None:
    first = instance(0)
    names = {program.entry_name(first)}
    for changed_fields in ({"element": "int"}, {"lanes": 4}, {"text": first.text + " "}, {"defines": (("A", "1"),)}):
        fields = {name: getattr(first, name) for name in first.__slots__}
        names.add(program.entry_name(Instance(**{**fields, **changed_fields})))
    assert len(names) == 5
    assert all(name.startswith("count_") and len(name) == len("count_") + 12 for name in names)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_instruction_set_follows_lanes_and_the_processor(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {"sse": set(), "avx2": processor._AVX2, "avx512": processor._AVX2 | processor._AVX512}
    for best, features in levels.items():
        monkeypatch.setattr(processor, "best_instruction_set", lambda best=best: best)
        level = {4: "sse", 8: "avx2", 16: "avx512"}[lanes]
        ranks = list(levels)
        assert processor.instruction_set(lanes) == min(level, best, key=ranks.index), features


@pytest.mark.parametrize(
    ("target", "knows"),
    [
        ("pthread-x86_64-unknown-linux-gnu-znver3", False), ("cpu-x86_64-pc-linux-gnu-znver4", True),
        ("pthread-x86_64-unknown-linux-gnu-skylake-avx512", True), ("cpu-x86_64-pc-linux-gnu-znver5", True),
        ("cpu-x86_64-pc-linux-gnu-sapphirerapids", True), ("pthread-x86_64-pc-linux-gnu-icelake-server", True),
        ("pthread-x86_64-pc-linux-gnu-cascadelake", True), ("cpu-x86_64-pc-linux-gnu-haswell", False),
    ],
)  # fmt: skip
def test_processors_for_which_pocl_uses_avx512(target: str, knows: bool) -> None:
    assert processor.llvm_knows_avx512(f"OpenCL 3.0 PoCL HSTR: {target}") is knows


# Objects and their cache


def test_kernels_of_one_object_are_found_one_by_one_by_another_store(store: objects.ObjectStore) -> None:
    instances = [instance(i) for i in range(5)]
    store.compile(instances)
    second_store = objects.ObjectStore(store.compiler, driver.capabilities_here())
    assert all(second_store.load(kernel_instance) for kernel_instance in instances)
    assert (second_store.compiled, second_store.loaded) == (0, 1)
    assert second_store.load(instance(9)) is None
    assert second_store.is_cached(instances[3])
    assert not second_store.is_cached(instance(9))


@pytest.mark.parametrize("damage", ["cut", "emptied", "overwritten", "swapped", "removed"])
def test_damaged_files_are_compiled_anew(store: objects.ObjectStore, damage: str) -> None:
    instances = [instance(i) for i in range(3)]
    store.compile(instances)
    store.compile([instance(7)])
    folder = cache.cache_folder()
    assert folder is not None
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".bin", ".idx"))
    assert len(files) == 5
    payloads = [path.read_bytes() for path in files]
    for path, payload, other_payload in zip(files, payloads, payloads[1:] + payloads[:1], strict=True):
        if damage == "removed":
            path.unlink()
        else:
            path.write_bytes({"cut": payload[: len(payload) // 2], "emptied": b"", "overwritten": b"x" * len(payload),
                              "swapped": other_payload}[damage])  # fmt: skip
    second_store = objects.ObjectStore(store.compiler, driver.capabilities_here())
    for kernel_instance in (*instances, instance(7)):
        assert second_store.load(kernel_instance) is None, kernel_instance.name
    second_store.compile(instances)
    assert all(second_store.load(kernel_instance) for kernel_instance in instances)


def test_a_full_disk_costs_the_cache_and_nothing_else(
    store: objects.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.tempfile, "mkstemp", full)
    store.compile([instance(1)])
    assert store.load(instance(1))
    assert not store.is_cached(instance(1))


def test_objects_load_where_there_is_no_proc(store: objects.ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects.os.path, "isdir", lambda path: False)
    store.compile([instance(2)])
    assert store.load(instance(2))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners are POSIX's")
def test_folders_of_others_are_not_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert "other users can write to it" in cache.why_unusable(folder)
    folder.chmod(0o700)
    assert cache.why_unusable(folder) == ""
    monkeypatch.setattr(cache.os, "geteuid", lambda: 12345)
    assert "belongs to another user" in cache.why_unusable(folder)
    (tmp_path / "file").write_text("")
    assert cache.why_unusable(tmp_path / "file") != ""


def test_an_unwritable_home_is_one_warning(tmp_path: Path) -> None:
    """Kernels then go to a private temporary folder, which is deleted at exit."""
    file = tmp_path / "file"
    file.write_text("")
    code = (
        "import warnings, weftgrad as wg\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(float((wg.ones(3) * 2).sum()))\n"
        "from weftgrad.runtime.cache import cache_folder\n"
        "print(len(caught), str(caught[0].message)); print(cache_folder())\n"
    )
    process = run(code, HOME=str(file), XDG_CACHE_HOME="", WEFTGRAD_CACHE=str(file / "cache"))
    value, message, folder = process.stdout.splitlines()
    assert value == "6.0", process.stderr
    assert message.startswith("1 weftgrad: the cache folder")
    assert "set WEFTGRAD_CACHE" in message
    assert not Path(folder).exists()


# Compilation in the background


def test_wrong_texts_are_named_and_cost_no_other_kernel(store: objects.ObjectStore) -> None:
    kernels = ClangKernels(store)
    bad_instance = instance(3, TEXT.replace("geo.n", "geo.no_such_field"))
    good_instances = [instance(i) for i in range(10, 14)]
    with pytest.raises(CompileError, match=r"count3: does not compile for cpu with clang(.|\n)*no_such_field"):
        kernels.build([good_instances[0], bad_instance, *good_instances[1:]])
    kernels.build(good_instances)
    assert all(kernels.kernel(good_instance).address for good_instance in good_instances)
    with pytest.raises(CompileError, match="no_such_field"):  # the error is raised again
        kernels.build([bad_instance])


def test_a_compiler_that_is_ended_is_started_again(store: objects.ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, tries = ClangKernels(store), []
    compile_objects = store.compile

    def ended_once(instances: Any) -> Any:
        tries.append(len(instances))
        if len(tries) == 1:
            raise InterruptedError("ended by signal 2")
        return compile_objects(instances)

    monkeypatch.setattr(store, "compile", ended_once)
    assert kernels.build([instance(20)]) == 1
    assert len(tries) == 2


def test_a_compiler_that_is_ended_again_and_again_is_an_error(
    store: objects.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(instances: Any) -> None:
        raise InterruptedError("clang was ended by signal 9")

    monkeypatch.setattr(store, "compile", killed)
    with pytest.raises(CompileError, match=r"count21: clang was ended by signal 9; is memory short\?"):
        ClangKernels(store).build([instance(21)])


def test_each_kernel_has_its_own_error(store: objects.ObjectStore) -> None:
    bad_instances = [instance(i, TEXT.replace("geo.n", f"geo.field{i}")) for i in (30, 31)]
    failures = store.compile([bad_instances[0], instance(32), bad_instances[1]])
    assert {kernel.name: f"field{kernel.name[5:]}" in str(error) for kernel, error in failures.items()} == {
        "count30": True, "count31": True,
    }  # fmt: skip
    assert store.load(instance(32))


def test_a_damaged_batch_is_repaired(store: objects.ObjectStore) -> None:
    """A kernel that is recompiled alone is found by later processes, although the index named the damaged batch."""
    instances = [instance(i) for i in range(40, 43)]
    store.compile(instances)
    folder = cache.cache_folder()
    assert folder is not None
    (batch,) = (path for path in folder.rglob("*.bin"))
    batch.write_bytes(b"")
    second_store = objects.ObjectStore(store.compiler, driver.capabilities_here())
    assert second_store.load(instances[1]) is None
    assert not second_store.is_cached(instances[1])
    second_store.compile([instances[1]])
    assert second_store.is_cached(instances[1])
    assert objects.ObjectStore(store.compiler, driver.capabilities_here()).load(instances[1])


def test_many_kernels_are_compiled_together(store: objects.ObjectStore) -> None:
    kernels = ClangKernels(store)
    assert kernels.build([instance(i) for i in range(40)]) == 40
    assert store.compiled <= 12
    assert kernels.build([instance(i) for i in range(40)]) == 0


@pytest.fixture
def empty_executor(store: objects.ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give `cpu` an executor without any compiled kernel."""
    from weftgrad.runtime.backends.cpu.launching import ClangExecutor
    from weftgrad.runtime.context import forget_plans

    cpu: Any = wg.device("cpu").driver  # type: ignore[attr-defined]
    cpu.require()
    cpu.synchronize()
    executor = ClangExecutor(store, cpu.counter)
    monkeypatch.setattr(cpu, "executor", executor)
    forget_plans()
    yield executor
    cpu.synchronize()
    forget_plans()


def test_launches_wait_for_their_kernels_in_order(empty_executor: Any) -> None:
    x = wg.full((1000,), 2.0, device="cpu")
    for _ in range(3):
        x = x * x - 1
        x += 0.5
    assert empty_executor.has_queued_launches
    y = x.numpy()
    assert not empty_executor.has_queued_launches
    expected = np.full(1000, 2.0, np.float32)
    for _ in range(3):
        expected = expected * expected - 1 + np.float32(0.5)
    np.testing.assert_array_equal(y, expected)
    z = x * x - 1
    assert not empty_executor.has_queued_launches  # its kernel is compiled: run at once
    np.testing.assert_array_equal(z.numpy(), expected * expected - 1)


def test_memory_freed_by_queued_launches_is_reused_in_order(empty_executor: Any) -> None:
    """Memory freed while its launch is queued goes to later launches, which run after it."""
    total = wg.zeros(4096, device="cpu")
    for i in range(20):
        temporary = wg.full((4096,), float(i), device="cpu") * 2
        total = total + temporary
    assert total.numpy()[0] == 2 * sum(range(20))


def test_launches_on_shared_arrays_are_not_queued(empty_executor: Any) -> None:
    array = np.ones(100, np.float32)
    shared = wg.from_numpy(array)
    result = wg.exp(shared)
    assert not empty_executor.has_queued_launches
    array[:] = 0
    np.testing.assert_allclose(result.numpy(), np.full(100, np.e), rtol=1e-6)
    shared.add_(3)
    assert array[0] == 3


def test_host_reads_wait_only_for_their_own_memory(empty_executor: Any) -> None:
    index = wg.tensor([0, 2], device="cpu")
    x = wg.ones(5, device="cpu").exp()
    assert empty_executor.has_queued_launches
    selected = x.index_select(0, index)  # the host reads the index, which no queued launch uses
    assert empty_executor.has_queued_launches
    np.testing.assert_allclose(selected.numpy(), np.full(2, np.e), rtol=1e-6)


def test_training_gives_the_same_bits_cold_and_warm(empty_executor: Any) -> None:
    def train() -> list[bytes]:
        wg.manual_seed(3)
        net = wg.nn.Sequential(wg.nn.Linear(20, 30), wg.nn.Tanh(), wg.nn.Linear(30, 5))
        optimizer = wg.optim.Adam(net.parameters(), lr=0.01)
        x, y = wg.randn(64, 20), wg.randint(0, 5, (64,))
        assert x.device.type == "cpu"
        for _ in range(3):
            loss = wg.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [p.detach().numpy().tobytes() for p in net.parameters()]

    cold = train()
    assert cold == train()


def test_compile_errors_are_raised_when_a_value_is_read(empty_executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    may_fail = threading.Event()

    def fail(instances: Any) -> Any:
        may_fail.wait()
        return {instance: CompileError(f"{instance.name}: planted") for instance in instances}

    x = wg.tensor([1.0, 2.0], device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(empty_executor.kernels.store, "compile", fail)
        y = x.cosh()
        z = y * 2
        may_fail.set()
        for _ in range(2):
            with pytest.raises(CompileError, match=r"(cosh|mul): planted"):
                z.numpy()
        while empty_executor.kernels._compiling:  # or its failure would come after the patch ends
            time.sleep(0.01)
    np.testing.assert_allclose(z.numpy(), 2 * np.cosh([1, 2]), rtol=1e-6)  # the failed launch stayed queued


def test_a_wrong_text_of_a_users_op_is_an_error_of_the_call(empty_executor: Any, tmp_path: Path) -> None:
    from weftgrad.runtime.records import registry

    path = tmp_path / "own.yaml"
    path.write_text("- {op: own_twice(input), kind: pointwise, doc: Twice., dtypes: float, out: 2 * input}\n")
    ops = wg.ops.load(str(path))
    assert registry.owner("own_twice")
    result = ops.own_twice(wg.tensor([1.0, 2.0], device="cpu"))
    assert not empty_executor.has_queued_launches  # compiled before the call returned
    assert result.tolist() == [2.0, 4.0]


def test_an_interrupt_in_the_middle_runs_nothing_twice(empty_executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.tensor([1.0], device="cpu")
    x += 1
    x += 1
    from weftgrad.runtime.backends.cpu import launching

    call, calls = launching._Launcher.call, []

    def interrupted(self: Any, *arguments: Any) -> None:
        call(self, *arguments)
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(launching._Launcher, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            x.tolist()
    assert x.tolist() == [3.0]


def test_threads_share_queued_launches(empty_executor: Any) -> None:
    mismatches: list[Any] = []

    def work(number: int) -> None:
        x = wg.full((1000,), float(number), device="cpu")
        for i in range(20):
            value = (x * x + i).numpy()
            if not (value == number * number + i).all():
                mismatches.append((number, i, value[0]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mismatches


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes(tmp_path: Path) -> None:
    """Also with kernels that the parent was still compiling at the fork."""
    code = (
        "import os, weftgrad as wg\n"
        "x = wg.ones(1 << 17, device='cpu'); float((x + x).sum())\n"
        "y = (x.exp() + 1).sum()\n"
        "if os.fork() == 0:\n"
        "    ok = abs(float(y) / (1 << 17) - 3.7182817) < 1e-4 and float((x.tanh() * 0 + x).sum()) == 1 << 17\n"
        "    os._exit(0 if ok else 1)\n"
        "status = os.waitstatus_to_exitcode(os.wait()[1])\n"
        "print(status, abs(float(y) / (1 << 17) - 3.7182817) < 1e-4)\n"
    )
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env={**os.environ, "WEFTGRAD_CACHE": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.stdout.split() == ["0", "True"], process


@pytest.mark.parametrize("native", ["1", "0"])
def test_the_path_without_c(native: str, tmp_path: Path) -> None:
    code = (
        "import weftgrad as wg\n"
        "x = wg.arange(1000.0, device='cpu'); y = (x * 2 + 1)[1::7].sum()\n"
        "w = wg.randn(40, 50, device='cpu'); print(float(y), tuple((w @ w.t()).shape))\n"
        "p = [wg.ones(3, requires_grad=True) for _ in range(40)]; o = wg.optim.SGD(p, 0.5)\n"
        "sum(q.sum() for q in p).backward(); o.step(); print(p[39].tolist())\n"
    )
    process = run(code, WEFTGRAD_NATIVE=native, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    total, shape = float(sum(2 * i + 1 for i in range(1, 1000, 7))), (40, 40)
    assert process.stdout.splitlines() == [f"{total} {shape}", "[0.5, 0.5, 0.5]"], process
