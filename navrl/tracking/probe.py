"""Whether a tracker's server is there: asked before a run relies on it, and never for long."""
from __future__ import annotations

import base64
import http.client
import os
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple

PROBE_SECONDS = 3.0


class Reply(NamedTuple):
    """What came of a question. status: HTTP's, None where no answer came; seconds: it took; why: none came, or ""."""

    status: int | None
    seconds: float
    why: str = ""


def answers(address: str, proxy: str | None = None, seconds: float = PROBE_SECONDS) -> bool:
    """Whether a server says anything but a server error within `seconds`, name look-up included."""
    status = ask(address + "/healthz", proxy, seconds).status
    return status is not None and status < 500


def ask(address: str, proxy: str | None = None, seconds: float = PROBE_SECONDS,
        headers: Mapping[str, str] | None = None) -> Reply:
    """GET `address` (its user and password become a header), through `proxy` if one is given. Never raises."""
    replies: list[tuple[int | None, str]] = []

    def get() -> None:
        handlers = [urllib.request.ProxyHandler({"http": proxy, "https": proxy})] if proxy else []
        try:
            plain, login = _without_login(address)
            request = urllib.request.Request(plain, headers={**login, **(headers or {})})
            with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
                replies.append((answer.status, ""))
        except urllib.error.HTTPError as error:
            replies.append((error.code, ""))
        except (OSError, ValueError, http.client.HTTPException) as error:
            replies.append((None, _why(error)))

    began = time.monotonic()
    thread = threading.Thread(target=get, daemon=True)
    thread.start()
    thread.join(seconds)
    status, why = replies[0] if replies else (None, "no answer")
    return Reply(status, time.monotonic() - began, why)


def _without_login(address: str) -> tuple[str, dict[str, str]]:
    parts = urllib.parse.urlsplit(address)
    login, separator, host = parts.netloc.rpartition("@")
    if not separator:
        return address, {}
    token = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {token}"}


def _why(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return "no answer"
    if isinstance(cause, ConnectionRefusedError):
        return "refused"
    if isinstance(cause, socket.gaierror):
        return "name not known"
    return " ".join(str(cause).split())[:60] or type(cause).__name__


def ask_no_proxy() -> None:
    """For `privacy: strict`: a proxy is asked for loopback addresses too, so this process forgets them all."""
    for variable in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[variable]
