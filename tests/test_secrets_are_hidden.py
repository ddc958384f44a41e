"""No key, token or password survives in text that is shown, recorded or published; innocent text does."""

from __future__ import annotations

import pytest

from navrl.redaction import HIDDEN, holds_password, is_secret_value, redact, redact_all, redact_command, redact_typed

HEX_KEY = "0123456789abcdef0123" * 2
SECRET = "S3cret-Value.9/x"

LEAKS = [
    f"--wandb_api_key={SECRET}",
    f"--api-key {SECRET}",
    f"WANDB_API_KEY={SECRET} python main.py",
    f"export HF_TOKEN={SECRET}",
    f"password = '{SECRET}'",
    f'"mlflow_password": "{SECRET}",',
    f"db_password: {SECRET}",
    f"  - swanlab_api_key: {SECRET}   # mine",
    f"http://user:{SECRET}@proxy.example:3128",
    "https://user:p@ss/S3cret-Value.9/x@host/path",
    f"postgresql+psycopg2://mlflow:{SECRET}@db/mlflow",
    f"https://{SECRET.replace('/', '')}@git.example/team/project.git",
    f"--wandb_proxy=me:{SECRET.replace('/', '')}@proxy.example:3128",
    f"Authorization: Bearer {SECRET}",
    f"authorization: basic {SECRET}",
    f"http://host/path?password={SECRET}&x=1",
]


@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_beside_its_name_or_in_a_url_is_hidden(text):
    shown = redact(f"before {text}\nafter" if not text.startswith(("db_", "  -")) else f"before\n{text}\nafter", {})
    assert "S3cret" not in shown and "Value" not in shown
    assert HIDDEN in shown and shown.startswith("before") and shown.endswith("after")
    assert redact(shown, {}) == shown


@pytest.mark.parametrize(
    "key",
    [
        HEX_KEY,
        HEX_KEY.upper(),
        "local-" + HEX_KEY,
        "wandb_v1_AbCdEf0123456789_xyz",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "hf_" + "a1B2" * 9,
        "sk-" + "a1B2" * 9,
        "AKIA" + "ABCD1234" * 2,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\nxyz\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_key_is_known_by_its_shape(key):
    shown = redact(f"look: {key} end", {})
    assert HIDDEN in shown and key.removeprefix("local-")[8:] not in shown and shown.endswith("end")


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "SWANLAB_API_KEY", "GITHUB_TOKEN", "PGPASSWORD", "MLFLOW_TRACKING_PASSWORD", "MY_SECRET_X"],
)
def test_values_of_secret_variables_are_hidden_wherever_they_stand(name):
    environ = {name: "correct horse!battery"}
    assert redact("x = 'correct horse!battery'; y", environ) == f"x = '{HIDDEN}'; y"
    assert "horse" not in redact("q?k=correct%20horse%21battery&x=1", environ)


def test_a_password_in_a_proxy_variable_is_hidden_outside_its_url_too():
    for written, meant in (("hunter2hunter2", "hunter2hunter2"), ("p%40ssw0rd", "p@ssw0rd")):
        assert redact(f"login with {meant}", {"HTTPS_PROXY": f"http://me:{written}@proxy:1"}) == f"login with {HIDDEN}"


def test_a_secret_inside_a_longer_one_leaves_no_rest():
    environ = {"A_TOKEN": "abcdefghijklmnop", "B_TOKEN": "abcdefghijklmnopqrstuvwx"}
    assert redact("abcdefghijklmnopqrstuvwx", environ) == HIDDEN


def test_short_and_empty_values_do_not_blot_out_the_text():
    environ = {"A_TOKEN": "", "B_TOKEN": "a", "C_API_KEY": "true", "D_PASSWORD": "test"}
    assert redact("a true latest test", environ) == f"a true latest {HIDDEN}"


@pytest.mark.parametrize(
    "text",
    [
        "python main.py --config configs/train/train_mpe.yaml --seed 1 --lr=5e-4",
        "TOKENIZERS_PARALLELISM=false",
        "--max_tokens 512",
        "def login(password: str, token: str | None) -> None:",
        "token = tokenizer(text)\nif token == other_token:\n    secret_sauce(1)",
        "http://127.0.0.1:5000/#/experiments/1 and http://host:80/@scope/x",
        "user.name@example.org, git@github.com:team/project.git",
        "sha256:" + HEX_KEY + HEX_KEY[:24],
        f'{{"git_commit": "{HEX_KEY}"}}',
        f"commit {HEX_KEY}",
        "https://host/path@v1, lr 5e-4",
        "x[1:]@W",
        "password: ${DB_PASSWORD}\napi_key: null\ntoken = '{token}'",
        "@pytest.mark.parametrize('key, value', [('lr', 1)])",
        "A1 = W @ x: 3",
    ],
)
def test_innocent_text_is_left_as_it_is(text):
    environ = {"PATH": "/usr/bin", "HOME": "/root", "OLDPWD": "/tmp", "TOKENIZERS_PARALLELISM": "1234567"}
    assert redact(text, environ) == text


def test_a_command_line_is_shown_as_typed_without_its_secrets():
    arguments = ["main.py", "--wandb_name", "two words", "--api_key", "-x9", "--token", "--seed", "1", f"--a={HEX_KEY}"]
    shown = f"main.py --wandb_name 'two words' --api_key {HIDDEN} --token --seed 1 '--a={HIDDEN}'"
    assert redact_command(arguments, {}) == shown


@pytest.mark.parametrize("unit", ["a", "a1+", "x:", "://a:", "--token", "eyJ", "\n", " \t", "key=", "'"])
def test_a_long_line_ends_and_hides_what_follows(unit):
    # With a search that is quadratic in the length of a line this would take hours.
    shown = redact(unit * (200_000 // len(unit)) + f"\n--token {SECRET}", {})
    assert shown.endswith(f"--token {HIDDEN}")


def test_secrets_are_hidden_in_everything_that_a_mapping_holds(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cretvalue")
    facts = {"git_commit": HEX_KEY, "note": HEX_KEY, "segments": ({"git_commit": HEX_KEY, "command": "s3cretvalue"}, 1)}
    assert redact_all(facts) == {
        "git_commit": HEX_KEY, "note": HIDDEN, "segments": [{"git_commit": HEX_KEY, "command": HIDDEN}, 1]
    }  # fmt: skip
    assert redact_all({"git_commit": "s3cretvalue"}) == {"git_commit": HIDDEN}


@pytest.mark.parametrize(
    "typed, shown",
    [
        ("'me:hunter2@host'", "***@host'"),
        ("me:hunter2@host://me:hunter2@host/ x", "***@host/ x"),
        ("'http://me:p@ss:w/rd@host'", "'http://***@host'"),
        ("'token=abc'", "'token=***'"),
        ("me@example.org", "me@example.org"),
        ("http://host:80/x", "http://host:80/x"),
    ],
)
def test_an_address_with_a_slip_in_it_is_shown_without_its_login(typed, shown):
    assert redact_typed(typed) == shown
    assert holds_password(typed) == (typed != shown)


def test_a_value_that_is_a_key_as_a_whole_is_known():
    assert is_secret_value(f" {HEX_KEY}\n") and is_secret_value("ghp_" + "a1B2" * 9)
    assert not is_secret_value(f"run of {HEX_KEY}") and not is_secret_value(7) and not is_secret_value("team")


def test_secrets_are_hidden_in_text(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cretvalue")
    text = redact(
        "key s3cretvalue, http://user:pa55@proxy:8080/x, --wandb_api_key 0123456789abcdef0123, api_key: "
        "'ffff0000ffff0000', lr 5e-4, https://host/path@v1"
    )
    assert "s3cretvalue" not in text and "pa55" not in text and "0123456789abcdef0123" not in text
    assert "ffff0000ffff0000" not in text
    assert "http://***@proxy:8080/x" in text and "lr 5e-4" in text and "https://host/path@v1" in text
    assert redact_all({"a": ["s3cretvalue", 1]}) == {"a": ["***", 1]}


def test_source_that_talks_of_tokens_is_left_readable():
    line = "token_embedding_dimension = tokens_per_observation_row  # password: see documentation_of_login"
    assert redact(line, {}) == line
