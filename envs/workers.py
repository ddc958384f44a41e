"""Worker processes for copies of an environment. Knows processes, pipes and shared memory; no torch, no learning.

Protocol: the parent sends ``(command, arguments)`` over a socket and the worker answers ``("ok", value)``,
``("refusal", text)`` or ``("fault", text)``; observations, actions and the like lie in memory that both map.

A worker is a fresh interpreter, started without ``multiprocessing``'s spawn: spawn imports the parent's main module
once more in every worker (torch and all), and names its shared memory, which then outlives a parent that is killed.
Here memory has no name, so it goes with its last process whatever ends that, and a worker watches for the end of
its parent, so that it ends too, even out of a call that hangs.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from envs.copies import Copies, CopyFault, Description, Refusal, array_shapes, buffer_size, views

# The parent's import path, so that a task of the user's own is found as the parent would find it
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from envs.workers import main; main(sys.argv[2:])"
_CLOSE_SECONDS = 5.0  # for environments to close themselves; then the worker is killed
_START_SECONDS = 60.0  # at least, for imports from a slow disk; `timeout` is about environments that run
_WATCH_SECONDS = 0.5  # how often a worker looks whether its parent is there
_FOR_THE_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def split(num_envs: int, num_workers: int) -> list[tuple[int, int]]:
    """``(first, count)`` per worker: contiguous, as even as can be."""
    bounds = [num_envs * w // num_workers for w in range(num_workers + 1)]
    return [(a, b - a) for a, b in zip(bounds, bounds[1:])]


class LocalGroup:
    """All copies in this process: for few copies, where a process costs more than it brings. No time limit."""

    def __init__(self, module: str, function: str, kwargs: dict[str, Any], num_envs: int) -> None:
        self.num_envs = num_envs
        self._copies = Copies(module, function, kwargs, 0, num_envs, 0)
        self.task = self._copies.task

    def attach(self, dtype: str, auto_reset: bool) -> dict[str, Any]:
        shapes = array_shapes(self.task, self.num_envs, 1, dtype)
        buffer = bytearray(buffer_size(shapes))
        self._copies.attach(buffer, shapes, auto_reset)
        return views(buffer, shapes)

    def call(self, command: str, *arguments: Any) -> list[Any]:
        return [getattr(self._copies, command)(*arguments)]

    def call_each(self, command: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        return self.call(command, *arguments[0])

    def split(self) -> list[tuple[int, int]]:
        return [(0, self.num_envs)]

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        self._copies.close()


class WorkerGroup:
    """Copies in ``num_workers`` processes. ``timeout``: seconds without any progress after which a worker is hung."""

    def __init__(
        self, module: str, function: str, kwargs: dict[str, Any], num_envs: int, num_workers: int, timeout: float
    ) -> None:
        self.num_envs, self.timeout = num_envs, timeout
        self._split = split(num_envs, num_workers)
        self._name = f"{module}:{function}"
        self._arrays: dict[str, Any] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._memory = _anonymous_file()
        self._owner = os.getpid()
        try:
            for worker, (first, count) in enumerate(self._split):
                self._spawn([module, function, kwargs, first, count, worker])
            tasks: list[Description] = self._collect(max(timeout, _START_SECONDS))
        except BaseException:
            self.kill()
            raise
        if any(task != tasks[0] for task in tasks):
            self.kill()
            raise Refusal(f"{self._name} describes itself differently from one process to the next")
        self.task = tasks[0]

    def _spawn(self, arguments: list[Any]) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        fds = (theirs.fileno(), self._memory)
        command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(self._owner), *map(str, fds)]
        with theirs, _held_back():
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds, env=environment))
        connection = Connection(ours.detach())
        self._connections.append(connection)
        self._send(len(self._connections) - 1, arguments)

    def attach(self, dtype: str, auto_reset: bool) -> dict[str, Any]:
        """Map the arrays of the batch here and in every worker, which builds its other copies then."""
        shapes = array_shapes(self.task, self.num_envs, len(self._split), dtype)
        size = buffer_size(shapes)
        os.ftruncate(self._memory, size)
        buffer = mmap.mmap(self._memory, size)
        self._arrays = views(buffer, shapes)
        self.call("attach", shapes, auto_reset)
        os.close(self._memory)
        self._memory = -1
        return self._arrays

    def call(self, command: str, *arguments: Any) -> list[Any]:
        return self.call_each(command, [arguments] * len(self._split))

    def call_each(self, command: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """One command with its own arguments for each worker; their answers. Any fault ends all workers."""
        try:
            for worker, own in enumerate(arguments):
                self._send(worker, (command, own))
            return self._collect(self.timeout)
        except BaseException:  # KeyboardInterrupt too: answers still on their way would be taken for later ones
            self.kill()
            raise

    def split(self) -> list[tuple[int, int]]:
        return self._split

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """Let environments close themselves, then end the processes. Safe to call twice, and after a fault."""
        if os.getpid() != self._owner:  # a forked child that exits must not end its parent's workers
            return
        for connection in self._connections:
            try:
                connection.send(("close", ()))
            except OSError:
                pass
        deadline = time.monotonic() + _CLOSE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for connection in self._connections:
            connection.close()
        if self._memory >= 0:
            os.close(self._memory)
        self._memory = -1
        self._processes, self._connections = [], []

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._connections[worker].send(message)
        except OSError:
            raise CopyFault(self._died(worker)) from None

    def _collect(self, timeout: float) -> list[Any]:
        answers: list[Any] = [None] * len(self._connections)
        pending = {connection: worker for worker, connection in enumerate(self._connections)}
        before = self._progress()
        while pending:
            ready = wait(list(pending), timeout)
            if not ready:
                now = self._progress()
                hung = [worker for worker in pending.values() if now[worker] == before[worker]]
                if hung:
                    raise CopyFault(f"{self._where(hung[0])}: no answer within {timeout:g} s (worker_timeout)")
                before = now
            for connection in ready:
                worker = pending.pop(connection)
                try:
                    kind, value = connection.recv()
                except (EOFError, OSError):
                    raise CopyFault(self._died(worker)) from None
                if kind != "ok":
                    raise (Refusal if kind == "refusal" else CopyFault)(value)
                answers[worker] = value
        return answers

    def _progress(self) -> list[int]:
        return [0] * len(self._split) if self._arrays is None else self._arrays["progress"].tolist()

    def _died(self, worker: int) -> str:
        process = self._processes[worker]
        try:
            code = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self._where(worker)}: worker process {worker} {how}"

    def _where(self, worker: int) -> str:
        """Which copy a worker was busy with, as far as its arrays tell."""
        first, count = self._split[worker]
        copies = f"copy {first}" if count == 1 else f"copies {first} to {first + count - 1}"
        if self._arrays is None:
            return f"{self._name}, starting {copies}"
        copy = int(self._arrays["current"][worker])
        if copy < 0:
            return f"{self._name}, {copies}"
        steps, episode = int(self._arrays["steps"][copy]), int(self._arrays["episode"][copy])
        return f"{self._name}, copy {copy}, step {steps} of episode {episode}"


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """A process started in here gets no signal for the whole group before it says that it ignores them (``main``)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _anonymous_file() -> int:
    """Descriptor of a file in memory that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("navrl-copies")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def main(arguments: list[str]) -> None:
    """A worker's life: build, answer commands, end."""
    parent, connection_fd, memory = map(int, arguments)
    os.dup2(2, 1)  # what an environment prints must not mix with what the program prints
    for number in _FOR_THE_PARENT:  # sent to the whole group; the parent decides, its end ends us
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_PARENT)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    connection = Connection(connection_fd)
    copies: Copies | None = None
    try:
        command, own = "start", tuple(connection.recv())
        while command != "close":
            try:
                if command == "start":
                    copies = Copies(*own)
                    value: Any = copies.task
                else:
                    assert copies is not None
                    value = _attach(copies, memory, *own) if command == "attach" else getattr(copies, command)(*own)
                answer = ("ok", value)
            except Refusal as refusal:
                answer = ("refusal", str(refusal))
            except CopyFault as fault:
                answer = ("fault", str(fault))
            connection.send(answer)
            command, own = connection.recv()
    except (EOFError, OSError):
        pass  # the parent is gone or has given us up
    if copies is not None:
        copies.close()


def _attach(copies: Copies, memory: int, shapes: Any, auto_reset: bool) -> None:
    buffer = mmap.mmap(memory, os.fstat(memory).st_size)
    os.close(memory)
    copies.attach(buffer, shapes, auto_reset)


def _end_with_parent(parent: int) -> None:
    # A closed pipe is not enough: a call that hangs reads none, and a fork of the parent would hold it open. The
    # kernel's parent-death signal is no choice either: it comes when the thread that started the worker ends.
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(0)
