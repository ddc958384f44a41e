"""Run a command in a network of its own that leads nowhere, and list what it sends: `network_cage.py REPORT COMMAND...`.

Started under `unshare --net --uts`, so the only way out is the tunnel device made here: whatever any process of the
command sends beyond loopback arrives in this process, whichever language it is written in. A line of the report is the
address that a packet was for.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

HOST = "hiddenhost"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCADDRT, _SIOCSIFFLAGS, _SIOCSIFADDR, _UP = 0x890B, 0x8914, 0x8916, 0x1


def argv(report: Path, *command: str) -> list[str]:
    return ["unshare", "--net", "--uts", sys.executable, __file__, str(report), *command]


def possible(scratch: Path) -> bool:
    """Whether this machine lets us make one."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(argv(scratch / "possible", "true"), capture_output=True, timeout=60).returncode == 0


def main(report: str, *command: str) -> int:
    socket.sethostname(HOST)
    tunnel = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH", b"out", _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        Path("/proc/sys/net/ipv6/conf/out/disable_ipv6").write_text("1")  # it would announce itself
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", b"out", _address("198.51.100.1")))
        for device in (b"lo", b"out"):
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", device, _UP))
        device, everywhere = ctypes.create_string_buffer(b"out"), _address("0.0.0.0")
        route = struct.pack(  # struct rtentry: everywhere is behind this device
            "L16s16s16sHhLPhPLLH", 0, everywhere, everywhere, everywhere, _UP, 0, 0, 0, 0, ctypes.addressof(device), 0,
            0, 0,
        )  # fmt: skip
        fcntl.ioctl(control, _SIOCADDRT, route)

    def listen() -> None:
        with open(report, "a") as file:
            while packet := os.read(tunnel, 65536):
                file.write(f"{socket.inet_ntoa(packet[16:20]) if packet[0] >> 4 == 4 else 'IPv6'}\n")
                file.flush()

    open(report, "a").close()
    threading.Thread(target=listen, daemon=True).start()
    return subprocess.run(command).returncode


def _address(value: str) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
