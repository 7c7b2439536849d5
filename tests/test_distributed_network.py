"""Two ranks in two network namespaces, by TCP through a program that delays and drops packets.

`WEFTGRAD_TEST_NETWORK=1 pytest tests/test_distributed_network.py`, as root on Linux, with MPICH.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed_ranks import find_launcher
from network_relay import ADDRESSES, Network, reason_to_skip

from weftgrad.cli.launch import flavour_of

TESTS = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    os.environ.get("WEFTGRAD_TEST_NETWORK") != "1" or reason_to_skip() is not None,
    reason=reason_to_skip() or "creates network namespaces: set WEFTGRAD_TEST_NETWORK=1",
)


class Job:
    """A program in two ranks, each in a namespace of its own."""

    def __init__(self, network: Network, folder: Path, arguments: list[str]):
        mpiexec = find_launcher()
        if flavour_of(mpiexec) != "hydra":
            pytest.skip("needs MPICH's mpiexec")
        network.write_remote_shell(folder / "shell")
        command = [
            mpiexec, "-launcher", "ssh", "-launcher-exec", str(folder / "shell"), "-iface", "wgtun",
            "-hosts", ",".join(ADDRESSES), "-n", "2", "-ppn", "1", sys.executable, *arguments,
        ]  # fmt: skip
        # libfabric's sockets: UCX looks for interfaces in /sys, which shows those of another namespace
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MASTER_ADDR": ADDRESSES[0],
            "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "WEFTGRAD_TEST_JOB": str(folder),
        }  # fmt: skip
        self._folder = folder
        self.process = subprocess.Popen(
            network.command(0, command), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> None:
        """Kill what is left: launchers wait for machines that they cannot reach."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"WEFTGRAD_TEST_JOB={self._folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), 9)
            except OSError:
                continue
        self.process.communicate(timeout=60)


@pytest.fixture
def slow_network() -> Iterator[Network]:
    network = Network(delay=0.002, loss=0.01)
    yield network
    network.close()


def test_results_on_a_slow_network(slow_network: Network, tmp_path: Path) -> None:
    for program, checks in (
        ("distributed_message_checks.py", "averages,sums_are_in_the_order_of_the_ranks,calls_in_any_state"),
        ("distributed_training_checks.py", f"{tmp_path}:equals_one_process_with_the_whole_batch,unused_parameters"),
    ):
        job = Job(slow_network, tmp_path, [str(TESTS / program), checks])
        output, errors = job.process.communicate(timeout=300)
        assert job.process.returncode == 0, output + errors
        assert sorted(re.findall(r"ok \d", output)) == ["ok 0", "ok 1"], output + errors
    assert slow_network.packets > 1000  # they did not find another way
    assert slow_network.dropped > 10


def test_a_cut_link(slow_network: Network, tmp_path: Path) -> None:
    seconds = 4.0
    job = Job(slow_network, tmp_path, [str(TESTS / "distributed_faults.py"), "cut", str(seconds), str(tmp_path)])
    try:
        _wait_for([tmp_path / "begun.0", tmp_path / "begun.1"], 120.0, job)
        slow_network.cut()
        reports = [tmp_path / "report.0", tmp_path / "report.1"]
        _wait_for(reports, seconds + 20.0, job)
        for rank, path in enumerate(reports):
            elapsed, _, text = path.read_text().partition(" ")
            assert float(elapsed) < seconds + 5.0
            assert text.startswith("CollectiveTimeout: all_reduce #"), text
            assert f"not completed within 4 s; rank {1 - rank} does not answer" in text
    finally:
        job.end()


def _wait_for(paths: list[Path], seconds: float, job: Job) -> None:
    deadline = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, [path.name for path in paths if not path.exists()]
        time.sleep(0.05)
