"""Two network namespaces, connected by a program that delays and drops packets: two machines on a slow network.

Needs Linux, root and `/dev/net/tun`. The namespaces have no names, and go with the processes in them.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ADDRESSES", "Network", "reason_to_skip"]

ADDRESSES = ("10.77.0.1", "10.77.0.2")
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN_WITHOUT_HEADER = 0x1001


def reason_to_skip() -> str | None:
    """Return why there can be no such network here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if not (Path("/dev/net/tun").exists() and shutil.which("ip") and shutil.which("nsenter")):
        return "needs /dev/net/tun, ip and nsenter"
    return None


class Network:
    """Two namespaces, each with an address of `ADDRESSES`, and the packets between them.

    Args:
        delay: Seconds that a packet takes.
        loss: The part of the packets that is dropped.
        seed: Decides which ones.

    Attributes:
        packets: How many packets have been delivered.
        dropped: How many have been dropped.
    """

    def __init__(self, delay: float = 0.0, loss: float = 0.0, seed: int = 0):
        self._delay, self._loss, self._random = delay, loss, random.Random(seed)
        self._is_cut = False
        self.packets = self.dropped = 0
        self._hosts: list[subprocess.Popen[bytes]] = []
        self._tunnels: list[int] = []
        try:
            for number in range(2):
                self._add_host(number)
        except BaseException:
            self.close()
            raise
        self._ends, self._end = os.pipe()
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def _add_host(self, number: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            command = [sys.executable, __file__, str(number), str(theirs.fileno())]
            self._hosts.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE))
            theirs.close()
            ours.settimeout(60)
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if not descriptors:
            raise OSError("a namespace could not be created")
        self._tunnels += descriptors

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in a namespace."""
        return ["nsenter", f"--net=/proc/{self._hosts[host].pid}/ns/net", "--", *words]

    def write_remote_shell(self, path: Path) -> None:
        """Write a program with the arguments of ssh: `ADDRESS COMMAND`."""
        cases = "\n".join(
            f'{address}) exec nsenter --net=/proc/{host.pid}/ns/net -- sh -c "$*" ;;'
            for address, host in zip(ADDRESSES, self._hosts, strict=True)
        )
        skip_options = 'while [ "${1#-}" != "$1" ]; do shift; done'
        path.write_text(f"#!/bin/sh\n{skip_options}\nhost=$1; shift\ncase $host in\n{cases}\nesac\nexit 1\n")
        path.chmod(0o755)

    def cut(self) -> None:
        """Deliver no packets any more."""
        self._is_cut = True

    def close(self) -> None:
        """End the namespaces. Processes in them must have ended before."""
        if hasattr(self, "_end"):
            os.close(self._end)
            self._thread.join()
            os.close(self._ends)
        for host in self._hosts:
            assert host.stdin is not None
            host.stdin.close()
            host.wait(60)
        for tunnel in self._tunnels:
            os.close(tunnel)

    def _relay(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []  # when, number, to which tunnel, packet
        first, second = self._tunnels
        number = 0
        while True:
            pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            readable, _, _ = select.select([first, second, self._ends], [], [], pause)
            if self._ends in readable:
                return
            for tunnel in readable:
                packet = os.read(tunnel, 65536)
                if self._is_cut or self._random.random() < self._loss:
                    self.dropped += 1
                    continue
                number += 1
                target = second if tunnel == first else first
                heapq.heappush(waiting, (time.monotonic() + self._delay, number, target, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(waiting)
                if not self._is_cut:
                    os.write(target, packet)
                    self.packets += 1


def _be_host(number: int, connection: socket.socket) -> None:
    """Create a namespace with a tunnel, send its descriptor, and wait for the end of the standard input."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    tunnel = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH22x", b"wgtun", _IFF_TUN_WITHOUT_HEADER))
    address, peer = ADDRESSES[number], ADDRESSES[1 - number]
    for words in ("link set lo up", f"addr add {address} peer {peer} dev wgtun", "link set wgtun up"):
        subprocess.run(["ip", *words.split()], check=True)
    socket.send_fds(connection, [b"+"], [tunnel])
    os.close(tunnel)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _be_host(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
