"""Takes keys, tokens and passwords, and what the user's `log_filter` matches, out of text before it is shown or sent."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"

# Names of configuration keys that ask for a secret: refused, so rather one too many.
_SECRET_KEY = re.compile(r"api_?key|access_?key|private_?key|token|passw|secret|credential|(^|_)key$", re.IGNORECASE)
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

# Keys that are known by their shape. W&B's were 40 hexadecimal digits until 2025, alas like a git commit, which is
# left alone where it is called one ("commit 0123...", "git_commit": "0123...").
_HEX_KEY = (
    r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]{40}(?![0-9A-Za-z]))"
    r"(?<!commit )(?<!commit=)(?<!commit: )(?<!commit\": \")(?<!commit': ')[0-9a-fA-F]{40}"
)
_KEYS = re.compile(
    rf"{_HEX_KEY}|\bwandb_v\d+_\w{{8,}}"  # W&B
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
    r"|\bhf_[A-Za-z0-9]{20,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"  # Hugging Face, OpenAI and others, Slack
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}"  # AWS, Google
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_AUTHORIZATION = re.compile(r"(?i)(\b(?:bearer|authorization:\s*(?:basic|token|bearer))\s+)[\w.~+/=-]{8,}")

# A value beside a name that says secret.
_SECRET_WORD = r"(?:api[_-]?key|access[_-]?key|private[_-]?key|token|passw(?:or)?d|secret)"
_SAYS_SECRET = re.compile(_SECRET_WORD, re.IGNORECASE)
_WORD = rf"[\w.-]{{0,64}}?{_SECRET_WORD}"
_NAME = rf"(?<![\w.-]){_WORD}"
_QUOTED = re.compile(rf"(?i)({_NAME}[\"']?\s*[:=]\s*[bru]?([\"']))([^\s\"'{{}}<>$]{{6,}})(\2)")
_FLAG = re.compile(rf"(?i)((?<![\w.-])--{_WORD}(?:=|\s+))([^\s'\"-][^\s'\"]*)")
_VARIABLE = re.compile(rf"(?im)((?:^|[\s;?&])(?:export\s+)?{_NAME}=)([^\s'\"$(){{}},&]{{4,}})")
_YAML = re.compile(rf"(?im)^([ \t]*(?:-[ \t]+)?{_NAME}:[ \t]+)(?=\S*\d)([^\s'\"$(){{}}\[\],]{{6,}})(?=[ \t]*(?:#.*)?$)")
_TYPED = re.compile(r"((?:password|token|secret|api_?key)=)[^\s&'\"]+", re.IGNORECASE)

_filters: tuple[re.Pattern[str], ...] = ()  # `log_filter` of the run that this process works for


def filter_texts(patterns: Iterable[str]) -> None:
    """From here on ``redact`` also hides, in this process, what these regular expressions match (``log_filter``).

    They replace those given before; none ends the filter. An expression's own text is hidden too, as it stands in a
    shell command, in YAML and in JSON, for it says what was to be hidden. Raises ``re.error`` for one that is none.
    """
    global _filters
    own: set[str] = set()
    patterns = tuple(patterns)
    for pattern in patterns:
        written = {pattern, pattern.replace("'", "''"), pattern.replace("'", "'\"'\"'")}
        for _ in range(2):  # metadata.json holds a command line that may hold a list
            written |= {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in written for ascii_only in (1, 0)}
        own |= written
    texts = [re.compile("|".join(re.escape(text) for text in sorted(own, key=len, reverse=True)))] if own else []
    _filters = (*texts, *(re.compile(pattern) for pattern in patterns))


def hide_matches(text: str) -> str:
    """``text`` with what ``log_filter`` matches as ``***``; empty matches and matches of ``*`` alone stay."""
    for pattern in _filters:
        text = pattern.sub(lambda match: HIDDEN if match[0].strip("*") else match[0], text)
    return text


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` without secrets (``redact_secrets``) and without what ``log_filter`` matches."""
    # Secrets first: a filter might hide the very word by which a secret is known.
    return hide_matches(redact_secrets(text, environ))


def redact_secrets(text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` with every secret that can be recognised shown as ``***``. Applying it twice changes nothing more.

    Recognised are: values of variables in ``environ`` (default: the process's) whose names say secret, and
    passwords inside its URLs, wherever they stand in the text; user and password of any URL; keys of known shape
    (among them 40 hexadecimal digits that are not called a commit); values beside a name that says key, token,
    password or secret.
    """
    for value in _secret_values(os.environ if environ is None else environ):
        if len(value) < _LONG_SECRET:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", HIDDEN, text)
        else:
            text = text.replace(value, HIDDEN)
    text = _KEYS.sub(HIDDEN, text)
    if "@" in text:
        for login in (_URL_PASSWORD, _URL_USER, _BARE_LOGIN):
            text = login.sub(f"{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    if _SAYS_SECRET.search(text):  # few files do, and the patterns below cost a second for all of this project
        text = _QUOTED.sub(rf"\1{HIDDEN}\4", text)
        for assigned in (_FLAG, _VARIABLE, _YAML):
            text = assigned.sub(rf"\1{HIDDEN}", text)
    return text


def redact_all(value: Any, environ: Mapping[str, str] | None = None) -> Any:
    """``redact`` applied to every text inside mappings, lists and tuples (which become lists).

    A 40-digit hash in a field whose name ends in ``commit`` is a commit and no key.
    """
    return in_all(value, lambda text: redact(text, environ))


def in_all(value: Any, change: Callable[[str], str]) -> Any:
    """``change`` applied to every text inside mappings, lists and tuples; a commit only loses what is filtered."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: in_all(item, hide_matches if _is_commit(key, item) else change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_all(item, change) for item in value]
    return value


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


def redact_typed(text: str) -> str:
    """``redact_secrets`` for what somebody typed as a value, which may be an address with a slip in it.

    Blunter than text can bear (``x[1:]@W`` is no login): all of a word before its last @ goes where it holds a colon.
    """
    words = re.split(r"(\s+)", _TYPED.sub(rf"\1{HIDDEN}", redact_secrets(text)))
    return "".join(_without_login(word) for word in words)


def is_secret_key(key: str) -> bool:
    """Whether a key, by its name, asks for something that must not be written down (``wandb_api_key``)."""
    return bool(_SECRET_KEY.search(key.replace("-", "_")))


def is_secret_value(value: Any) -> bool:
    """Whether a value is, as a whole, what a key or token looks like."""
    return isinstance(value, str) and _KEYS.fullmatch(value.strip()) is not None


def holds_password(value: Any) -> bool:
    """Whether an address carries a user, a password or a token (``http://user:password@host``)."""
    return isinstance(value, str) and redact_typed(value) != value


def _without_login(word: str) -> str:
    before, _, after = word.rpartition("@")
    if ":" not in before:
        return word
    scheme, separator, _ = before.partition("://")
    return (scheme + separator if separator and not set(":@") & set(scheme) else "") + f"{HIDDEN}@{after}"


def _is_commit(key: Any, value: Any) -> bool:
    return str(key).endswith("commit") and isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40}", value) is not None


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
