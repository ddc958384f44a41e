"""Addresses of MLflow stores: which can work, and which are on this machine. Imports nothing heavy."""
from __future__ import annotations

import urllib.parse

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def fault_of_store(uri: str) -> str:
    """Why no store can be there, without the address itself (it may hold a password); "" where one can."""
    scheme, _, rest = uri.partition("://")
    kind = scheme.partition("+")[0]
    if kind not in (*DATABASES, "http", "https") or uri != uri.strip():
        return "is no database and no server; write sqlite:///FILE, postgresql+psycopg2://... or http://HOST:PORT"
    if kind == "sqlite":
        file = rest.removeprefix("/")
        named = rest.startswith("/") and file.strip("/") and file != ":memory:"
        return "" if named else "names no file; write sqlite:///FILE"
    try:
        parts = urllib.parse.urlsplit(uri)
        parts.port  # noqa: B018  raises where it is no number
    except ValueError:
        return "has a port that is no number from 0 to 65535; write http://HOST:PORT"
    if kind in ("http", "https") and not parts.hostname:
        return "names no host; write http://HOST:PORT"
    return ""


def on_this_machine(uri: str) -> bool:
    """Whether a store is a file or a loopback address. A database may also name its host in the query, so none is
    taken there."""
    parts = urllib.parse.urlsplit(uri)
    return parts.scheme.partition("+")[0] == "sqlite" or (parts.hostname in LOOPBACK and not parts.query)
