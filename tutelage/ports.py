"""Ports of this machine: who has one, and which are free."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from tutelage.errors import ConfigError


def taken(host: str, port: int) -> str:
    """Who listens on a port of this machine, or nothing where it is free."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
            return ""
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(
                    f"vllm_host={host} is no address of this machine: type vllm_host=127.0.0.1"
                ) from error
    if port_owner := listener(port):
        words = Path(f"/proc/{port_owner}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"process {port_owner} ({words.strip()[:80]})"
    return "another process"


def listener(port: int) -> int | None:
    """The process that listens on a port, as far as we may see."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if Path(table).exists() else ():
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # listening
                sockets.add(f"socket:[{fields[9]}]")
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(handle) in sockets:
                return int(handle.parents[1].name)
    return None


def free(host: str, count: int) -> int:
    """The first of so many free ports in a row."""
    return next(first for first in range(8766, 65535 - count) if not any(taken(host, first + i) for i in range(count)))
