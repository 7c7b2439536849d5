"""Bare containers without a home, linker, C compiler, disk space, /proc or write permission; and shared caches.

Each condition is set up for a child process. `WEFTGRAD_TEST_ROUNDS` is the number of repetitions of the test in which
processes start cold on one cache (.ci/run: 20).
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weftgrad.runtime import control_groups, memory_stats
from weftgrad.runtime.backends import processor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the conditions need Linux")

ROUNDS = int(os.environ.get("WEFTGRAD_TEST_ROUNDS", "1"))
PROGRAM = """
import weftgrad as wg
wg.manual_seed(1)
x = wg.randn(70, 30, requires_grad=True)
y = (wg.nn.functional.gelu(x @ x.t()) + 1).log_softmax(1).sum()
y.backward()
print(f"{float(y):.3f} {float(x.grad.square().sum()):.3f}")
"""
EPOCH = """
from weftgrad.demo.train import train
print(len(train(epochs=1, steps=4, device="cpu").losses))
"""


def environment(tmp_path: Path, **changes: str | None) -> dict[str, str]:
    """Return an environment with only the package path of this process, and an empty folder as PATH."""
    empty_folder = tmp_path / "nothing"
    empty_folder.mkdir(exist_ok=True)
    variables: dict[str, str | None] = {"PATH": str(empty_folder), "TMPDIR": str(tmp_path), **changes}
    if "PYTHONPATH" in os.environ:
        variables["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return {name: value for name, value in variables.items() if value is not None}


def run(
    code: str, variables: dict[str, str], prefix: tuple[str, ...] = (), arguments: tuple[str, ...] = (), **options: Any
) -> Any:
    command = [*prefix, sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the program prints under normal conditions."""
    process = run(PROGRAM, dict(os.environ))
    assert process.returncode == 0, process.stderr
    return str(process.stdout)


def shell(*lines: str) -> tuple[str, ...]:
    """Return a command prefix that runs `lines` in a private mount namespace. Skip the test if that is not allowed."""
    unshare, mount = shutil.which("unshare"), shutil.which("mount")  # absolute paths: the PATH of the child is empty
    tools = " && ".join(lines).replace("mount ", f"{mount} ")
    if unshare is None or subprocess.run([unshare, "-m", "/bin/sh", "-c", tools], capture_output=True).returncode:
        pytest.skip("no mounts of a process's own here")
    return (unshare, "-m", "/bin/sh", "-c", f'{tools} && exec "$@"', "sh")


def test_no_home_no_linker_no_compiler(tmp_path: Path, expected: str) -> None:
    """As with `env -i`: kernels are compiled, and without a home the cache lasts as long as the process."""
    process = run(PROGRAM, environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")))
    assert (process.returncode, process.stdout, process.stderr) == (0, expected, "")
    variables = environment(tmp_path)
    if os.geteuid() == 0:  # root has a home in /etc/passwd even without HOME
        variables["HOME"] = "/nonexistent/home"
    process = run(PROGRAM + EPOCH, variables)
    assert (process.returncode, process.stdout) == (0, f"{expected}4\n"), process.stderr
    assert not list(tmp_path.glob("weftgrad-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_without_rights(expected: str) -> None:
    """User 65534 can write neither to the package nor to a home: the program works, with one warning.

    The interpreter and its packages are mounted into a public folder, since other users cannot read root's home and
    pytest's temporary folders.
    """
    packages = Path(sysconfig.get_path("purelib"))
    if not (packages / "weftgrad").is_dir():
        pytest.skip("an editable installation lies where only its owner may read")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        room = Path(name)
        room.chmod(0o755)
        for subfolder in ("python", "packages", "scratch"):
            (room / subfolder).mkdir()
        (room / "scratch").chmod(0o777)
        prefix = shell(f"mount --bind {sys.base_prefix} {room}/python", f"mount --bind {packages} {room}/packages")
        interpreter = room / "python/bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        become = (
            "import os, sys; os.chdir('/'); os.setgroups([]); os.setgid(65534); os.setuid(65534); "
            "os.execv(sys.argv[1], [sys.argv[1], '-c', sys.argv[2]])"
        )
        variables = environment(
            room,
            HOME="/nonexistent",
            TMPDIR=f"{room}/scratch",
            PYTHONPATH=f"{room}/packages",
            PYTHONHOME=f"{room}/python",
        )
        process = run(become, variables, prefix, arguments=(str(interpreter), PROGRAM))
    assert (process.returncode, process.stdout) == (0, expected), process.stderr
    assert process.stderr.count("RuntimeWarning") == 1


def test_a_full_disk(tmp_path: Path, expected: str) -> None:
    """Cache and temporary folder are full: temporary files go to shared memory, and nothing is cached."""
    full = tmp_path / "full"
    full.mkdir()
    prefix = shell(f"mount -t tmpfs -o size=256k none {full}")
    code = f"open({str(full / 'filler')!r}, 'wb', buffering=0).write(bytes(1 << 20))\n{PROGRAM}"
    process = run(code, environment(tmp_path, TMPDIR=str(full), WEFTGRAD_CACHE=str(full / "cache")), prefix)
    assert (process.returncode, process.stdout) == (0, expected), process.stderr


def test_a_read_only_file_system(tmp_path: Path, expected: str) -> None:
    """Only the temporary folder is writable."""
    writable = tmp_path / "own"
    writable.mkdir()
    prefix = shell(f"mount -t tmpfs none {writable}", "mount -o remount,ro,bind / || mount -o remount,ro /")
    process = run(PROGRAM, environment(tmp_path, TMPDIR=str(writable), HOME="/root"), prefix)
    assert (process.returncode, process.stdout) == (0, expected), process.stderr


def test_no_proc(tmp_path: Path, expected: str) -> None:
    prefix = shell("mount -t tmpfs none /proc")
    process = run(PROGRAM, environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache")), prefix)
    assert (process.returncode, process.stdout) == (0, expected), process.stderr


def test_a_limited_address_space(tmp_path: Path, expected: str) -> None:
    """The memory pools respect the limit: too large a tensor raises an error instead of ending the process."""
    limit = 3 << 30
    code = (
        PROGRAM + "try:\n    wg.zeros(1 << 30) + 1\nexcept wg.runtime.errors.OutOfMemoryError as error:\n"
        "    print('limit' in str(error))\n"
    )
    variables = environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    process = run(code, variables, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert (process.returncode, process.stdout) == (0, f"{expected}True\n"), process.stderr


@pytest.mark.parametrize("damage", ["cut", "emptied", "overwritten"])
def test_damaged_caches(damage: str, tmp_path: Path, expected: str) -> None:
    """If all cache files are damaged, the program compiles its kernels again."""
    variables = environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    assert run(PROGRAM, variables).stdout == expected
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        content = path.read_bytes()
        noise = np.random.default_rng(len(content)).bytes(len(content))
        path.write_bytes({"cut": content[: len(content) // 2], "emptied": b"", "overwritten": noise}[damage])
    for _ in range(2):
        process = run(PROGRAM, variables)
        assert (process.returncode, process.stdout) == (0, expected), process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_processes_that_start_cold_on_one_cache(turn: int, tmp_path: Path, expected: str) -> None:
    variables = environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    command = [sys.executable, "-c", PROGRAM]
    running = [
        subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out) == (0, expected), err
    assert not list((tmp_path / "cache").rglob("*.part"))


@pytest.mark.slow
def test_interrupts_leave_a_good_cache(tmp_path: Path, expected: str) -> None:
    """Ctrl-C at any moment of a cold start leaves no broken file in the cache."""
    variables = environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    for wait in (0.3, 0.5, 0.7, 0.9, 1.1):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            process.send_signal(2)
        out, _ = process.communicate(timeout=60)
        assert out in ("", expected)
    process = run(PROGRAM, variables)
    assert (process.returncode, process.stdout) == (0, expected), process.stderr


# Limits read from files


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        ({"proc/self/cgroup": "0::/elsewhere\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        (
            {"proc/self/cgroup": "4:cpu,cpuacct:/job\n0::/\n", "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "300000",
             "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
             "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            3.0,
        ),
    ],
)  # fmt: skip
def test_time_that_control_groups_allow(files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert control_groups.cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "cores"), [(None, 64), (2.0, 2), (1.5, 2), (0.1, 1), (100.0, 64)])
def test_cores_of_a_host_with_64(quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor.os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(processor, "_quota", lambda: quota)
    assert processor.cores() == cores


def test_memory_is_bounded_by_the_address_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    everything = memory_stats.host_memory(tmp_path)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 29, -1))
    assert memory_stats.host_memory(tmp_path) == 1 << 29 <= everything
