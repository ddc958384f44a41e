"""A real headless Chromium for tests, spoken to over a pipe in its DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-proxy-server", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
TEXT = """(function text(node) {
    const inside = node.shadowRoot ? [node.shadowRoot, ...node.childNodes] : [...node.childNodes];
    return node.nodeName == "STYLE" || node.nodeName == "SCRIPT" ? "" : node.nodeType == 3 ? node.data
        : inside.map(text).join("");
})"""


class Browser:
    """One page. `profile`: an empty directory for all that the browser keeps."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 900) -> None:
        program = next(filter(None, map(shutil.which, NAMES)))
        ends = [*os.pipe(), *os.pipe()]
        commands, self._out, self._in, answers = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
        for end in ends:
            os.close(end)
        script = f'exec 3<&{commands} 4>&{answers}; exec "$@"'  # the protocol's two ends are descriptors 3 and 4
        flags = (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}")
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *flags],
            env=os.environ | {"HOME": str(profile)}, pass_fds=(commands, answers), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._buffer, self._numbers, self._session = b"", itertools.count(1), None
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    def text(self) -> str:
        """What a reader of the page sees, and the text of components that keep theirs to themselves."""
        return self.run(f"{TEXT}(document)")

    def wait(self, script: str, seconds: float = 120) -> Any:
        """The expression's value as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"{script} stays {value!r} on the page:\n{self.text()[:3000]}"
            time.sleep(0.1)
        return value

    def wait_for(self, *texts: str, seconds: float = 120) -> None:
        """Until all of these are on the page."""
        for text in texts:
            self.wait(f"{TEXT}(document).includes({json.dumps(text)})", seconds)

    def picture(self, path: Path, **options: Any) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))

    def listen(self) -> None:
        """From here on ``complaints`` and ``requests`` know what happens; call it before ``open``."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what the page's policy refused."""
        found = []
        for event in self._happened():
            what = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(what["exceptionDetails"].get("exception", {}).get("description", str(what)))
            elif event["method"] == "Log.entryAdded" and what["entry"]["level"] in ("warning", "error"):
                found.append(what["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and what["type"] in ("warning", "error", "assert"):
                found.append(str([argument.get("value", argument) for argument in what["args"]]))
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [event["params"]["request"]["url"] for event in self._happened()
                if event["method"] == "Network.requestWillBeSent"]  # fmt: skip

    def press(self, key: str, **more: Any) -> None:
        """A key, by its DOM name ("ArrowRight", " ", "Tab"), pressed and let go."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def mouse(self, *moves: tuple[str, float, float]) -> None:
        """mousePressed, mouseMoved, mouseReleased at points of the window, one after another."""
        for kind, x, y in moves:
            held = {"button": "left", "buttons": 1, "clickCount": 1} if kind != "mouseMoved" else {}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def _happened(self) -> list[dict[str, Any]]:
        self.run("0")  # what was under way before this answer has been read
        return self._events

    def close(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(timeout=10)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            while b"\0" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\0")
                answer = json.loads(line)
                if "method" in answer:
                    self._events.append(answer)
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    return answer["result"]
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser does not answer {method}"
            self._buffer += (read := os.read(self._in, 1 << 20))
            assert read, "the browser ended"
