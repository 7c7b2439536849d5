"""What a bare container has not: a home, a linker, a C compiler, room, /proc, the right to write; and shared caches.

Conditions are made for a process of their own. `WEFTGRAD_TEST_ROUNDS` says how often processes that start cold share
one cache (.ci/run: 20).
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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="conditions are made by Linux's means")

ROUNDS = int(os.environ.get("WEFTGRAD_TEST_ROUNDS", "2"))
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
    """Nothing of this process's environment but where packages are, with a PATH on which there is nothing."""
    nothing = tmp_path / "nothing"
    nothing.mkdir(exist_ok=True)
    variables: dict[str, str | None] = {"PATH": str(nothing), "TMPDIR": str(tmp_path), **changes}
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
    """What the program prints with everything at hand, by the cache of this run."""
    done = run(PROGRAM, dict(os.environ))
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def shell(*lines: str) -> tuple[str, ...]:
    """A prefix that makes mounts of a process's own before it starts; the test is skipped where that is refused."""
    unshare, mount = shutil.which("unshare"), shutil.which("mount")  # PATH has neither
    tools = " && ".join(lines).replace("mount ", f"{mount} ")
    if unshare is None or subprocess.run([unshare, "-m", "/bin/sh", "-c", tools], capture_output=True).returncode:
        pytest.skip("no mounts of a process's own here")
    return (unshare, "-m", "/bin/sh", "-c", f'{tools} && exec "$@"', "sh")


def test_no_home_no_linker_no_compiler(tmp_path: Path, expected: str) -> None:
    """`env -i`: kernels are compiled all the same, and kept in a folder that goes with the process."""
    done = run(PROGRAM, environment(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")))
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    bare = environment(tmp_path)
    if os.geteuid() == 0:  # whose entry in the list of users names a home
        bare["HOME"] = "/nonexistent/home"
    done = run(PROGRAM + EPOCH, bare)
    assert (done.returncode, done.stdout) == (0, f"{expected}4\n"), done.stderr
    assert not list(tmp_path.glob("weftgrad-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_without_rights(expected: str) -> None:
    """User 65534 can write neither to the package nor to a home: one warning, and the program works.

    The interpreter and its packages are mounted where everybody may read them, since root's home and pytest's temporary
    folders are closed to other users.
    """
    packages = Path(sysconfig.get_path("purelib"))
    if not (packages / "weftgrad").is_dir():
        pytest.skip("an editable installation lies where only its owner may read")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        room = Path(name)
        room.chmod(0o755)
        for folder in ("python", "packages", "scratch"):
            (room / folder).mkdir()
        (room / "scratch").chmod(0o777)
        prefix = shell(f"mount --bind {sys.base_prefix} {room}/python", f"mount --bind {packages} {room}/packages")
        interpreter = room / "python/bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        become = (
            "import os, sys; os.chdir('/'); os.setgroups([]); os.setgid(65534); os.setuid(65534); "
            "os.execv(sys.argv[1], [sys.argv[1], '-c', sys.argv[2]])"
        )
        variables = environment(
            room, HOME="/nonexistent", TMPDIR=f"{room}/scratch", PYTHONPATH=f"{room}/packages", PYTHONHOME=f"{room}/python"
        )
        done = run(become, variables, prefix, arguments=(str(interpreter), PROGRAM))
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert done.stderr.count("RuntimeWarning") == 1


def test_a_full_disk(tmp_path: Path, expected: str) -> None:
    """Cache and temporary folder have no room: files are made in shared memory, and nothing is kept."""
    full = tmp_path / "full"
    full.mkdir()
    prefix = shell(f"mount -t tmpfs -o size=256k none {full}")
    code = f"open({str(full / 'filler')!r}, 'wb', buffering=0).write(bytes(1 << 20))\n{PROGRAM}"
    done = run(code, environment(tmp_path, TMPDIR=str(full), WEFTGRAD_CACHE=str(full / "cache")), prefix)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_a_read_only_file_system(tmp_path: Path, expected: str) -> None:
    """All of it but the temporary folder."""
    own = tmp_path / "own"
    own.mkdir()
    prefix = shell(f"mount -t tmpfs none {own}", "mount -o remount,ro,bind / || mount -o remount,ro /")
    done = run(PROGRAM, environment(tmp_path, TMPDIR=str(own), HOME="/root"), prefix)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_no_proc(tmp_path: Path, expected: str) -> None:
    prefix = shell("mount -t tmpfs none /proc")
    done = run(PROGRAM, environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache")), prefix)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_a_limited_address_space(tmp_path: Path, expected: str) -> None:
    """The pools know it: what does not fit is an error with the figures, and not the end of the process."""
    limit = 3 << 30
    code = (
        PROGRAM + "try:\n    wg.zeros(1 << 30) + 1\nexcept wg.runtime.errors.OutOfMemoryError as error:\n"
        "    print('limit' in str(error))\n"
    )
    variables = environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    done = run(code, variables, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert (done.returncode, done.stdout) == (0, f"{expected}True\n"), done.stderr


@pytest.mark.parametrize("damage", ["cut", "emptied", "overwritten"])
def test_damaged_caches(damage: str, tmp_path: Path, expected: str) -> None:
    """Whatever became of every file, a program compiles anew what it needs."""
    variables = environment(tmp_path, WEFTGRAD_CACHE=str(tmp_path / "cache"))
    assert run(PROGRAM, variables).stdout == expected
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        content = path.read_bytes()
        noise = np.random.default_rng(len(content)).bytes(len(content))
        path.write_bytes({"cut": content[: len(content) // 2], "emptied": b"", "overwritten": noise}[damage])
    for _ in range(2):
        done = run(PROGRAM, variables)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


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
    """Ctrl-C at any moment of a cold start; the next start finds what was compiled, and nothing broken."""
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
    done = run(PROGRAM, variables)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


# Limits that are read from files


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
