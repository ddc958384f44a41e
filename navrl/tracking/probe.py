"""Whether a tracker's server is there: asked before a run relies on it, and never for long."""
from __future__ import annotations

import threading
import urllib.error
import urllib.request

PROBE_SECONDS = 3.0


def answers(address: str, proxy: str | None = None, seconds: float = PROBE_SECONDS) -> bool:
    """Whether a server says anything but a server error within `seconds`, name look-up included."""
    verdict: list[bool] = []

    def ask() -> None:
        handlers = [urllib.request.ProxyHandler({"http": proxy, "https": proxy})] if proxy else []
        try:
            with urllib.request.build_opener(*handlers).open(address + "/healthz", timeout=seconds):
                verdict.append(True)
        except urllib.error.HTTPError as error:
            verdict.append(error.code < 500)
        except Exception:
            verdict.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(verdict and verdict[0])
