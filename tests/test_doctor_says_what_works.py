"""`scripts/doctor.py` tries what the configuration asks for, says what to write instead, and harms nothing."""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import mlflow_tools
import pytest
import sqlalchemy
from wandb_stand_in import KEY, free_port
from whole_runs import ROOT

from navrl.tracking import registry

LOOPBACK_ONLY = ("--mlflow_tracking_uri", "null")


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """Call the script here, without any tracker's variables: (exit code, report, what was said)."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "SWANLAB_", "MLFLOW_", "NETRC", "NAVRL_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    closed = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("WANDB_BASE_URL", closed)
    monkeypatch.setenv("SWANLAB_API_HOST", closed)
    spec = importlib.util.spec_from_file_location("doctor", ROOT / "scripts" / "doctor.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*argv):
        argv = argv if "--run_dir" in argv else ("--run_dir", str(tmp_path / "runs"), *argv)
        capsys.readouterr()
        code = module.main([*argv, "--json"])
        said = capsys.readouterr()
        report = json.loads(said.out) if said.out else {}
        report["by"] = {finding["tracker"]: finding for finding in report.get("trackers", ())}
        return code, report, said.out + said.err

    call.module = module
    return call


class Listener:
    """A port that takes connections, counts them and, without `answer`, never says a word."""

    def __init__(self, answer: bytes = b""):
        self.socket, self.count, self.open = socket.create_server(("127.0.0.1", 0)), 0, []
        self.port, self.answer = self.socket.getsockname()[1], answer
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.socket.accept()[0]
                self.count += 1
                self.open.append(connection)
                if self.answer:
                    connection.recv(65536)
                    connection.sendall(self.answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in [self.socket, *self.open]:
            connection.close()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
BROKEN = OK.replace(b"200 OK", b"502 Bad Gateway")


# ---- servers


def test_nothing_there_is_no_fault_where_the_configuration_can_do_without(doctor, tmp_path):
    code, report, _ = doctor("--logger", "console", "wandb", "swanlab", "mlflow", "tensorboard")
    assert (code, report["faults"]) == (0, [])
    assert [finding["tracker"] for finding in report["trackers"]] == ["wandb", "swanlab", "mlflow", "tensorboard"]
    assert all(finding["asked"] and finding["version"] for finding in report["trackers"])
    assert report["by"]["wandb"]["reach"] == report["by"]["swanlab"]["reach"] == "refused"
    assert report["by"]["wandb"]["setting"] == "wandb_mode: offline"
    assert report["by"]["mlflow"]["setting"] == "mlflow_tracking_uri: null"
    assert not (tmp_path / "runs").exists()


def test_a_server_that_hangs_costs_three_seconds_in_all(doctor, monkeypatch):
    with Listener() as hanging:
        monkeypatch.setenv("WANDB_BASE_URL", hanging.url)
        monkeypatch.setenv("SWANLAB_API_HOST", hanging.url)
        began = time.monotonic()
        code, report, _ = doctor("--logger", "console", "wandb", "mlflow", "--mlflow_tracking_uri", hanging.url)
        took = time.monotonic() - began
    assert code == 1 and "no server" in report["faults"][0] and len(report["faults"]) == 1
    for tracker in ("wandb", "swanlab", "mlflow"):
        assert report["by"][tracker]["reach"] == "no answer" and 2.5 < report["by"][tracker]["seconds"] < 4
    assert took < 20  # one after another, and with retries, it would be minutes


@pytest.mark.parametrize(
    ("answer", "key", "setting", "reach"),
    [
        (OK, KEY, "online", "answers"),
        (OK, "", "offline", "answers"),
        (OK.replace(b"200 OK", b"404 Not Found"), KEY, "online", "answers"),
        (BROKEN, KEY, "offline", "error 502"),
    ],
)
def test_online_needs_a_key_and_a_server(doctor, monkeypatch, answer, key, setting, reach):
    with Listener(answer) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", key)
        monkeypatch.setenv("SWANLAB_API_HOST", server.url)
        monkeypatch.setenv("SWANLAB_API_KEY", key)
        code, report, said = doctor("--logger", "console", "wandb", "swanlab", "--wandb_mode", "online",
                                    "--swanlab_mode", "online")  # fmt: skip
    for tracker in ("wandb", "swanlab"):
        found = report["by"][tracker]
        assert (found["setting"], found["reach"]) == (f"{tracker}_mode: {setting}", reach)
        assert found["key"] == ("yes" if key else "no")
        assert bool(found["fault"]) == (setting == "offline")
        if found["fault"]:
            assert (f"{tracker} login" in found["fault"]) == (not key)
    assert code == (1 if setting == "offline" else 0)
    assert KEY not in said


def test_the_proxy_is_asked_for_wandb_alone(doctor, monkeypatch):
    with Listener(OK) as proxy, Listener(OK) as other:
        monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.invalid")
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("SWANLAB_API_HOST", other.url)
        address = f"http://user:pa55w0rd@127.0.0.1:{proxy.port}"
        code, report, said = doctor("--logger", "wandb", "--wandb_proxy", address, "--mlflow_tracking_uri", other.url)
        assert (code, proxy.count, other.count) == (0, 1, 2)
    assert report["by"]["wandb"]["setting"] == "wandb_mode: online" and "pa55w0rd" not in said


def test_strict_opens_no_outside_socket(doctor, monkeypatch):
    def look(*flags):
        with Listener(OK) as outside:
            monkeypatch.setenv("WANDB_BASE_URL", outside.url)
            monkeypatch.setenv("WANDB_API_KEY", KEY)
            monkeypatch.setenv("SWANLAB_API_HOST", outside.url)
            for variable in ("http_proxy", "https_proxy", "all_proxy"):  # whoever asks for any host ends up there
                monkeypatch.setenv(variable, outside.url)
            result = doctor("--logger", "console", "wandb", "mlflow", *flags)
            return outside.count, *result

    asked = ("--mlflow_tracking_uri", "http://mlflow.invalid:5000")
    assert look("--privacy", "strict", *asked)[:2] == (0, 2)  # refused as main.py refuses it
    count, code, report, _ = look("--privacy", "strict")
    assert (count, code) == (0, 0) and report["by"]["wandb"]["setting"] == "wandb_mode: offline"
    assert look(*asked)[0] == 3  # the same without strict: all three are asked


# ---- MLflow's stores


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mlflow")
    server = mlflow_tools.Server(directory, mlflow_tools.empty_store(directory / "server.db"))
    yield server
    server.kill()


def test_a_real_mlflow_server_serves_and_is_missed(doctor, server, monkeypatch):
    code, report, _ = doctor("--logger", "mlflow", "--mlflow_tracking_uri", server.url)
    found = report["by"]["mlflow"]
    assert (code, found["reach"], found["store"], found["key"]) == (0, "answers", "writable", "no")
    assert found["setting"] == f"mlflow_tracking_uri: {server.url}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url.replace("http://", "http://me:pa55w0rd@"))
    code, report, said = doctor("--logger", "mlflow")
    found = report["by"]["mlflow"]
    assert (code, found["key"]) == (0, "yes") and "pa55w0rd" not in said
    assert found["setting"].startswith("mlflow_tracking_uri: null  # the address with its password")
    server.kill()
    code, report, _ = doctor("--logger", "mlflow")
    assert code == 1 and report["by"]["mlflow"]["setting"] == "mlflow_tracking_uri: null"
    assert "no server; write mlflow_tracking_uri: null" in report["faults"][0] and "pa55w0rd" not in report["faults"][0]


class Guarded(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        right = self.headers.get("Authorization") == "Basic bWU6cHc="  # me:pw
        self.send_response(200 if right and "/api/2.0/mlflow/experiments/search" in self.path else 401)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def test_a_login_is_used_and_a_refusal_is_said(doctor, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as guarded:
        threading.Thread(target=guarded.serve_forever, daemon=True).start()
        asked = ("--logger", "mlflow", "--mlflow_tracking_uri", f"http://127.0.0.1:{guarded.server_port}")
        code, report, _ = doctor(*asked)
        assert code == 1 and "login refused; set MLFLOW_TRACKING_USERNAME" in report["faults"][0]
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pw")
        assert doctor(*asked)[0] == 0
        guarded.shutdown()
    with Listener(OK.replace(b"200 OK", b"404 Not Found")) as other:
        code, report, _ = doctor("--logger", "mlflow", "--mlflow_tracking_uri", other.url)
    assert code == 1 and "no MLflow there" in report["faults"][0]
    with Listener(OK.replace(b"200 OK", b"500 Internal Server Error")) as ill:
        code, report, _ = doctor("--logger", "mlflow", "--mlflow_tracking_uri", ill.url)
    assert code == 1 and "the server answered 500" in report["faults"][0]


def test_an_sqlite_file_that_takes_no_rows_is_named(doctor, tmp_path):
    (tmp_path / "text.db").write_text("this is no database, and long enough to be seen as none\n" * 9)
    (tmp_path / "directory.db").mkdir()
    for name, why in (("text.db", "not a database"), ("directory.db", "unable to open"), ("no/such/x.db", "")):
        code, report, _ = doctor("--logger", "mlflow", "--mlflow_tracking_uri", f"sqlite:///{tmp_path}/{name}")
        assert code == (1 if why else 0) and why in "".join(report["faults"]), name
    assert doctor("--logger", "mlflow", "--mlflow_tracking_uri", "ftp://host/x")[0] == 2
    code, report, _ = doctor("--logger", "mlflow", "--mlflow_tracking_uri", "sqlite:////proc/navrl/x.db")
    assert code == 1 and "/proc" in report["faults"][0]


def test_looking_at_a_store_changes_nothing_and_does_not_wait_for_who_writes(doctor, tmp_path):
    path = tmp_path / "runs" / "mlflow.db"
    mlflow_tools.empty_store(path)
    before = path.read_bytes()
    writer = sqlite3.connect(path)
    writer.execute("BEGIN IMMEDIATE")
    assert doctor("--logger", "mlflow")[0] == 0
    writer.rollback()
    writer.close()
    assert path.read_bytes() == before and [entry.name for entry in path.parent.iterdir()] == ["mlflow.db"]


@pytest.mark.requires_service("postgresql")
def test_a_postgresql_that_serves_is_read_only_and_is_gone(doctor):
    postgres = mlflow_tools.Postgres()
    try:
        asked = ("--logger", "mlflow", "--mlflow_tracking_uri", postgres.url)
        code, report, _ = doctor(*asked)
        assert (code, report["by"]["mlflow"]["reach"]) == (0, "connected"), report["faults"]
        engine = sqlalchemy.create_engine(postgres.url)
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("ALTER DATABASE mlflow SET default_transaction_read_only = on"))
            connection.commit()
        engine.dispose()
        code, report, _ = doctor(*asked)
        assert code == 1 and "read-only" in report["faults"][0]
    finally:
        postgres.close()
    code, report, _ = doctor(*asked)
    assert code == 1 and "refused" in report["faults"][0]


def test_a_database_that_hangs_costs_three_seconds(doctor):
    with Listener() as hanging:
        uri = f"postgresql+psycopg2://me:pa55w0rd@127.0.0.1:{hanging.port}/mlflow"
        code, report, said = doctor("--logger", "mlflow", "--mlflow_tracking_uri", uri)
    assert code == 1 and "no answer in 3 s" in report["faults"][0] and "pa55w0rd" not in said


# ---- this machine


def test_a_directory_that_cannot_be_written_and_a_device_that_is_not_there(doctor):
    code, report, _ = doctor("--run_dir", "/proc/navrl", "--device", "cuda:77")
    assert code == 1 and not report["run_dir_writable"]
    assert "device" in report["faults"][0] and "run_dir: cannot write /proc" in report["faults"][1]


@contextlib.contextmanager
def tmpfs(directory: Path, options: str):
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_small_and_a_read_only_disk(doctor, tmp_path):
    with tmpfs(tmp_path / "small", "size=20m"):
        code, report, _ = doctor("--run_dir", str(tmp_path / "small" / "runs"))
        assert code == 1 and "MB left" in report["faults"][0] and report["free_mb"] <= 20
    with tmpfs(tmp_path / "locked", "size=500m,ro"):
        code, report, _ = doctor("--run_dir", str(tmp_path / "locked"))
        assert code == 1 and "Read-only" in report["faults"][0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_of_another(doctor, tmp_path):
    (tmp_path / "shut").mkdir(mode=0o555)
    code, report, _ = doctor("--run_dir", str(tmp_path / "shut"))
    assert code == 1 and "Permission denied" in report["faults"][0]


def test_what_is_not_installed_is_said_with_the_command_that_installs_it(doctor, monkeypatch):
    import importlib.metadata

    real = importlib.metadata.version

    def version(name):
        if name in ("swanlab", "mlflow", "wandb"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    code, report, _ = doctor("--logger", "console", "wandb", "swanlab")
    assert code == 1 and len(report["faults"]) == 2
    assert all("not installed: pip install -r requirements" in fault for fault in report["faults"])
    assert report["by"]["wandb"]["setting"] == "log_wandb: False"
    assert report["by"]["swanlab"]["setting"] == "logger: [console, wandb]"


@pytest.mark.parametrize("code", ["raise OSError('half installed')", "Settings = 1 / 0", "raise SystemExit(4)"])
def test_a_broken_package_is_a_row_like_any_other(doctor, monkeypatch, tmp_path, code):
    (tmp_path / "swanlab.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in [name for name in sys.modules if name.partition(".")[0] == "swanlab"]:
        monkeypatch.delitem(sys.modules, module)
    code, report, _ = doctor("--logger", "console", "swanlab")
    assert code == 1 and len(report["faults"]) == 1 and "swanlab: cannot be used" in report["faults"][0]
    assert report["by"]["swanlab"]["setting"] == "logger: [console]" and report["by"]["mlflow"]["version"] != "broken"
    assert doctor("--logger", "console", "mlflow")[0] == 0  # what is not asked for is no fault


def test_a_tracker_of_ones_own_has_a_row(doctor, monkeypatch):
    monkeypatch.setitem(registry.TRACKERS, "mine", "navrl.tracking.tensorboard:TensorboardTracker")
    monkeypatch.setitem(registry.TRACKERS, "gone", "navrl.tracking.gone:GoneTracker")
    _, report, _ = doctor("--logger", "console")
    assert (report["by"]["mine"]["version"], report["by"]["gone"]["version"]) == ("importable", "broken")


def test_a_directory_with_too_long_a_name_is_a_fault_of_one_line(doctor, tmp_path):
    code, report, said = doctor("--run_dir", str(tmp_path / ("x" * 300)))
    assert code == 1 and any("File name too long" in fault for fault in report["faults"]), said


# ---- how it speaks


def test_the_table_says_the_same_for_a_person(doctor, capsys, tmp_path):
    code = doctor.module.main(["--run_dir", str(tmp_path), "--logger", "console", "mlflow", "--log_filter", "tmp"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines[:5]] == ["tracker", "wandb", "swanlab", "mlflow", "tensorboard"]
    assert lines[3].endswith("mlflow_tracking_uri: null") and "yes" in lines[3]
    assert lines[6].startswith("python ") and "devices: cpu" in lines[6]
    assert "MB left" in lines[7] and "tmp" not in lines[7]  # log_filter holds here too
    assert lines[-1] == "training can record what the configuration asks for"


def test_a_bad_configuration_is_refused_as_by_main(doctor):
    code, _, said = doctor("--lrr", "3")
    assert code == 2 and "nearest: --lr" in said and "Traceback" not in said


def test_its_settings_are_ones_that_main_takes(doctor, tmp_path):
    _, report, _ = doctor("--logger", "console", "tensorboard")
    file = tmp_path / "c.yaml"
    file.write_text("".join(finding["setting"] + "\n" for finding in report["trackers"]))
    code, again, _ = doctor("--config", str(file))
    assert code == 0 and again["by"]["tensorboard"]["asked"]
