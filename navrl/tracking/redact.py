"""Keys and tokens never leave the machine: their values are replaced before any text is stored or published."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_URL_USER = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@'\"]+@")
# `api_key = "..."`, `--token ...`, `PASSWORD: ...`: a long value beside a name that says secret.
_ASSIGNED = re.compile(
    r"(?P<name>[\w-]*(?:api[_-]?key|token|secret|password|passwd)[\w-]*[\"']?\s*(?:[=:]\s*|\s+)[\"']?)"
    r"(?P<value>[A-Za-z0-9_+/=.-]{16,})", re.IGNORECASE)


def secrets(environ: Mapping[str, str] | None = None) -> list[str]:
    """Values of environment variables whose names say secret, longest first (6 characters or more)."""
    environ = os.environ if environ is None else environ
    values = {value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= 6}
    return sorted(values, key=len, reverse=True)


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` with secret values of the environment, `user:password@` of URLs and assigned keys shown as ***."""
    for value in secrets(environ):
        text = text.replace(value, HIDDEN)
    text = _URL_USER.sub(lambda match: f"{match['scheme']}{HIDDEN}@", text)
    return _ASSIGNED.sub(lambda match: match["name"] + HIDDEN if _looks_random(match["value"]) else match[0], text)


def redact_all(value: Any) -> Any:
    """`redact` applied to every text inside mappings and lists."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_all(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item) for item in value]
    return value


def _looks_random(value: str) -> bool:
    """Digits and letters mixed: a key, rather than an identifier such as `entropy_coefficient`."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
