"""A gate on loopback before a real server: it passes everything on, or fails as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

PIECE = 65536


class Gate:
    """`set("open")` passes on; `closed` refuses connections; `hang` accepts and never answers; `slow:SECONDS` holds
    back each piece of a request; `500`, `401` answer with that status. A change cuts the connections that are open.
    """

    def __init__(self, behind: int, port: int = 0) -> None:
        """behind: the server's port; port: the gate's own, 0 = any that is free. Both on loopback."""
        self.behind = behind
        self._mode = "open"
        self._lock, self._open = threading.Lock(), set()
        self._listener = self._listen(port)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def set(self, mode: str) -> None:
        self._mode = mode
        if mode == "closed":
            self._shut()
        elif self._listener is None:
            self._listener = self._listen(self.port)
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.set("closed")

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _shut(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with self._lock:
                    self._open.add(client)
                threading.Thread(target=self._serve, args=(client, self._mode), daemon=True).start()

    def _serve(self, client: socket.socket, mode: str) -> None:
        server = None
        try:
            if mode == "hang":
                while client.recv(PIECE):
                    pass
            elif mode in ("500", "401"):
                client.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    while client.recv(PIECE):  # the whole request: an answer amid it would be taken for a broken line
                        pass
                client.sendall(f"HTTP/1.1 {mode} fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            else:
                server = socket.create_connection(("127.0.0.1", self.behind), timeout=10)
                server.settimeout(None)
                pause = float(mode.partition(":")[2] or 0)
                back = threading.Thread(target=_pass_on, args=(server, client, 0.0), daemon=True)
                back.start()
                _pass_on(client, server, pause)
                back.join()
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()
            if server is not None:
                server.close()


def _pass_on(source: socket.socket, target: socket.socket, pause: float) -> None:
    try:
        while data := source.recv(PIECE):
            time.sleep(pause)
            target.sendall(data)
    except OSError:
        pass
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)
