"""Takes keys, tokens and passwords out of text before it is recorded or published."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

HIDDEN = "***"

# Environment variables whose values are secret. The word must end the name ("TOKENIZERS_PARALLELISM" is none).
_SECRET_VARIABLE = re.compile(
    r"(API_?KEY|_KEY|ACCESS_KEY_ID|TOKEN|PASSWORD|PASSWD|_PWD|CREDENTIALS?)$|SECRET", re.IGNORECASE
)
_SHORTEST_SECRET = 4  # characters; a shorter value would blot out innocent text
_LONG_SECRET = 12  # characters; from here on a value is also found inside a longer word
_NO_SECRETS = {"true", "false", "none", "null", "default", "offline", "online", "disabled"}

# user:password@ and token@ in URLs. A password may hold "/" and "@"; a port ("host:80/") starts none.
# Lengths are bounded, here and below, so that a long line without spaces costs no quadratic time.
_URL_PASSWORD = re.compile(r"(?<=://)[^\s/:@'\"`<>]{0,128}:(?!\d{1,5}(?:[/?#,\s'\"]|$))[^\s'\"`<>]{0,256}@")
_URL_USER = re.compile(r"(?<=://)[^\s/?#'\"`<>]{0,512}@")
# user:password@host:port without a scheme
_BARE_LOGIN = re.compile(r"(?<![\w/@:.-])[^\s/:@=,'\"`<>]{1,64}:[^\s/@,'\"`<>]{1,128}@(?=[\w.-]{1,128}:\d)")

# Keys that are known by their shape.
_KEYS = re.compile(
    r"\bwandb_v1_[A-Za-z0-9_]{8,}"  # W&B
    r"|(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])"  # W&B until 2025 (and, alas, a git hash)
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
    r"|\bhf_[A-Za-z0-9]{20,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"  # Hugging Face, OpenAI and others, Slack
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}"  # AWS, Google
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_AUTHORIZATION = re.compile(r"(?i)(\b(?:bearer|authorization:\s*(?:basic|token|bearer))\s+)[\w.~+/=-]{8,}")

# A value beside a name that says secret.
_WORD = r"[\w.-]{0,64}?(?:api[_-]?key|access[_-]?key|private[_-]?key|token|passw(?:or)?d|secret)"
_NAME = rf"(?<![\w.-]){_WORD}"
_QUOTED = re.compile(rf"(?i)({_NAME}[\"']?\s*[:=]\s*[bru]?([\"']))([^\s\"'{{}}<>$]{{6,}})(\2)")
_FLAG = re.compile(rf"(?i)((?<![\w.-])--{_WORD}(?:=|\s+))([^\s'\"-][^\s'\"]*)")
_VARIABLE = re.compile(
    r"(API_?KEY|_KEY|ACCESS_KEY_ID|TOKEN|PASSWORD|PASSWD|_PWD|CREDENTIALS?)$|SECRET", re.IGNORECASE
)
_SHORTEST_SECRET = 4  # characters; a shorter value would blot out innocent text
_LONG_SECRET = 12  # characters; from here on a value is also found inside a longer word
_NO_SECRETS = {"true", "false", "none", "null", "default", "offline", "online", "disabled"}

# user:password@ and token@ in URLs. A password may hold "/" and "@"; a port ("host:80/") starts none.
# Lengths are bounded, here and below, so that a long line without spaces costs no quadratic time.
_URL_PASSWORD = re.compile(r"(?<=://)[^\s/:@'\"`<>]{0,128}:(?!\d{1,5}(?:[/?#,\s'\"]|$))[^\s'\"`<>]{0,256}@")
_URL_USER = re.compile(r"(?<=://)[^\s/?#'\"`<>]{0,512}@")
# user:password@host:port without a scheme
_BARE_LOGIN = re.compile(r"(?<![\w/@:.-])[^\s/:@=,'\"`<>]{1,64}:[^\s/@,'\"`<>]{1,128}@(?=[\w.-]{1,128}:\d)")

# Keys that are known by their shape.
_KEYS = re.compile(
    r"\bwandb_v1_[A-Za-z0-9_]{8,}"  # W&B
    r"|(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])"  # W&B until 2025 (and, alas, a git hash)
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
    r"|\bhf_[A-Za-z0-9]{20,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"  # Hugging Face, OpenAI and others, Slack
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}"  # AWS, Google
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_AUTHORIZATION = re.compile(r"(?i)(\b(?:bearer|authorization:\s*(?:basic|token|bearer))\s+)[\w.~+/=-]{8,}")

# A value beside a name that says secret.
_WORD = r"[\w.-]{0,64}?(?:api[_-]?key|access[_-]?key|private[_-]?key|token|passw(?:or)?d|secret)"
_NAME = rf"(?<![\w.-]){_WORD}"
_QUOTED = re.compile(rf"(?i)({_NAME}[\"']?\s*[:=]\s*[bru]?([\"']))([^\s\"'{{}}<>$]{{6,}})(\2)")
_FLAG = re.compile(rf"(?i)({_NAME.replace('.-])', '.-])--', 1)}(?:=|\s+))([^\s'\"-][^\s'\"]*)")
_VARIABLE = re.compile(rf"(?im)((?:^|[\s;])(?:export\s+)?{_NAME}=)([^\s'\"$(){{}},]{{4,}})")
_YAML = re.compile(rf"(?im)^([ \t]*(?:-[ \t]+)?{_NAME}:[ \t]+)(?=\S*\d)([^\s'\"$(){{}}\[\],]{{6,}})(?=[ \t]*(?:#.*)?$)")


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` with every secret that can be recognised shown as ``***``. Applying it twice changes nothing more.

    Recognised are: values of variables in ``environ`` (default: the process's) whose names say secret, and
    passwords inside its URLs, wherever they stand in the text; user and password of any URL; keys of known shape
    (among them 40 hexadecimal digits: W&B's older keys look like git hashes, so do not pass a bare git hash
    through here); values beside a name that says key, token, password or secret.
    """
    for value in _secret_values(os.environ if environ is None else environ):
        if len(value) < _LONG_SECRET:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", HIDDEN, text)
        else:
            text = text.replace(value, HIDDEN)
    text = _KEYS.sub(HIDDEN, text)
    for login in (_URL_PASSWORD, _URL_USER, _BARE_LOGIN):
        text = login.sub(f"{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    text = _QUOTED.sub(rf"\1{HIDDEN}\4", text)
    for assigned in (_FLAG, _VARIABLE, _YAML):
        text = assigned.sub(rf"\1{HIDDEN}", text)
    return text


def redact_command(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """The command line as one would type it, without secrets (``--api_key VALUE`` in two arguments included)."""
    shown: list[str] = []
    hide = False
    for argument in arguments:
        if hide and not argument.startswith("--"):
            shown.append(HIDDEN)
        else:
            shown.append(redact(argument, environ))
        hide = re.fullmatch(rf"--?{_WORD}", argument, re.IGNORECASE) is not None
    return " ".join(HIDDEN if word == HIDDEN else shlex.quote(word) for word in shown)


def _secret_values(environ: Mapping[str, str]) -> list[str]:
    """Longest first, so that a secret inside a longer one leaves no rest; as they are and percent-encoded."""
    found: set[str] = set()
    for name, value in environ.items():
        if _SECRET_VARIABLE.search(name):
            found.update((value, value.strip()))
        for login in re.findall(r"://[^\s/:@]*:([^\s]*)@", value):
            found.update((login, unquote(login)))
    found.update([quote(value, safe="") for value in found])
    usable = (value for value in found if len(value) >= _SHORTEST_SECRET and value.lower() not in _NO_SECRETS)
    return sorted(usable, key=lambda value: (-len(value), value))
