"""Checkpoints come back: from W&B (its client and the stand-in server) and MLflow (SQLite and a real server).

One run publishes to both trackers and is stopped; its directory is deleted. What evaluates and goes on from there is
held against the run that was never stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow_tools
import pytest
import tracking_run
from test_tracking_wandb_proxy import CountingProxy
from wandb_stand_in import StandIn, free_port
from whole_runs import (
    ROOT, call, differences, last_state, metadata, rows, run_dirs, stop_after, summary, tiny_argv, train,
)  # fmt: skip

import navrl.recovery
from navrl.checkpoint import CheckpointStore
from navrl.tracking import fetch as fetching
from navrl.tracking.fetch import FetchError, fetch
from navrl.tracking.hub import TrackerHub

pytest.importorskip("wandb")
pytest.importorskip("mlflow")
pytestmark = pytest.mark.usefixtures("no_code_copy", "clean")

MODEL = "navrl_simple_spread_mappo"
WANDB = f"wandb:local/NAVRL/{MODEL}"
NEWEST = f"{WANDB}:v4"  # of the stopped run, at step 2800; `latest` is another's once it has gone on
REACH = {"mlflow_tracking_uri": None, "run_dir": "runs", "wandb_proxy": None, "privacy": "normal"}


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No tracker's variables; what is left in the home directory or among temporary files is seen."""
    for name in [name for name in os.environ if name.startswith(("WANDB", "MLFLOW", "NAVRL_RUNS"))]:
        monkeypatch.delenv(name)
    for name in ("home", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    yield
    assert list((tmp_path / "home").iterdir()) == list((tmp_path / "scratch").iterdir()) == []


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory):
    """A whole run, and one stopped in its seventh of ten iterations whose directory is gone but for a copy."""
    base = tmp_path_factory.mktemp("published")
    server = StandIn()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrackerHub, "_keep_code", lambda hub, root: None)
        for name, value in {**server.variables, "HOME": str(base)}.items():
            patch.setenv(name, value)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        whole = train(base / "whole")
        root = base / "runs"
        mlflow_tools.empty_store(root / "mlflow.db")
        argv = with_wandb(tiny_argv(root, "--logger", "console", "wandb", "mlflow", "--keep_artifacts", "all",
                                    "--checkpoint_interval", "2", "--tracker_timeout", "60"))  # fmt: skip
        stop_after(patch, 7)
        stopped = call(argv, root)
    assert whole.code == 0 and stopped.code == 143, whole.err + stopped.err
    assert "wandb: all 8 rows" in stopped.out and "mlflow: all 8 rows" in stopped.out, stopped.out
    run_dir = stopped.run_dir
    uid = json.loads((run_dir / "tracking" / "run.json").read_text())["uid"]
    copy = Path(shutil.copytree(run_dir, base / "copy"))
    shutil.rmtree(run_dir)
    yield SimpleNamespace(whole=whole.run_dir, root=root, run_dir=run_dir, copy=copy, uid=uid, server=server)
    server.close()


def with_wandb(argv: list[str]) -> list[str]:
    return ["--log_wandb" if word == "--no_log_wandb" else word for word in argv]


def reach(patch: pytest.MonkeyPatch, server: StandIn) -> None:
    for name, value in server.variables.items():
        patch.setenv(name, value)


def evaluate(*argv: str) -> tuple[int, str, str]:
    spec = importlib.util.spec_from_file_location("evaluate_script", ROOT / "scripts" / "evaluate.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = script.main([*argv, "--episodes", "3", "--backend", "batched"])
    return code, out.getvalue(), err.getvalue()


def goes_on(run_dir: Path, published: SimpleNamespace, step: int) -> None:
    """All that the run made after ``step`` is that of the run which was never stopped, to the bit."""
    assert differences(last_state(published.whole), last_state(run_dir)) == []
    assert rows(run_dir) == [row for row in rows(published.whole) if row["step"] > step]
    for name in ("status", "final", "best", "last"):
        assert summary(run_dir)[name] == summary(published.whole)[name], name
    assert json.loads((run_dir / "tracking" / "run.json").read_text())["uid"] == published.uid
    (segment,) = metadata(run_dir)["segments"]
    assert segment["step"] == step and segment["origin"]["from"] in metadata(run_dir)["command"]


def resume(reference: str, *flags: str) -> Any:
    """``main.py --resume``, with the words that it records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["main.py", "--resume", reference, *flags])
        return call(["--resume", reference, *flags], Path(flags[flags.index("--run_dir") + 1]))


# ---- W&B


def test_evaluating_an_artifact_is_evaluating_its_file(published, monkeypatch) -> None:
    reach(monkeypatch, published.server)
    code, table, err = evaluate("--checkpoint", NEWEST)
    assert code == 0, err
    assert evaluate("--checkpoint", str(CheckpointStore(published.copy / "checkpoints").path("last"))) == (0, table, "")


def test_a_run_goes_on_from_an_early_artifact_and_wandb_gets_each_step_once(published, monkeypatch) -> None:
    """The server has rows up to step 2800 already; the run is taken up at 1600, and made anew where it was."""
    reach(monkeypatch, published.server)
    went_on = resume(f"{WANDB}:v2", "--run_dir", str(published.root), "--logger", "console", "wandb")
    assert went_on.code == 0, went_on.err
    assert went_on.run_dir == published.run_dir
    goes_on(went_on.run_dir, published, 1600)
    assert "wandb: all 6 rows" in went_on.out
    run = published.server.dump()["runs"][published.uid]
    assert run["inserts"] == 1 and run["exitcode"] == 0
    sent = [{name: value for name, value in row.items() if name in known} for row, known in
            zip(run["history"], rows(published.whole))]  # fmt: skip
    assert sent == rows(published.whole)
    # published again from what is here now, nothing changes
    env = tracking_run.environment(published.root.parent / "home", **published.server.variables)
    done = tracking_run.sync(env, went_on.run_dir)
    assert done.returncode == 0 and "wandb has 6 of 6 rows" in done.stdout, done.stdout + done.stderr
    assert published.server.dump()["runs"][published.uid]["history"] == run["history"]
    # the directory is there again: that is what goes on from now on
    refused = resume(f"{WANDB}:v2", "--run_dir", str(published.root))
    assert refused.code == 2 and f"continue it with --resume {went_on.run_dir}" in refused.err
    assert run_dirs(published.root) == [went_on.run_dir]


def test_elsewhere_another_runs_directory_of_that_name_is_left_alone(published, tmp_path, monkeypatch) -> None:
    """And the best checkpoint so far, which is not the one that was named, comes along."""
    reach(monkeypatch, published.server)
    taken = tmp_path / "other" / published.run_dir.relative_to(published.root)
    (taken / "tracking").mkdir(parents=True)
    (taken / "tracking" / "run.json").write_text('{"uid": "another"}')
    monkeypatch.setenv("NAVRL_RUNS", str(tmp_path / "not here"))  # the command line goes before it
    went_on = resume(f"{WANDB}:v3", "--run_dir", str(tmp_path / "other"), "--logger", "console", "--no_log_wandb")
    assert went_on.code == 0, went_on.err
    assert went_on.run_dir == taken.with_name(taken.name + "-2") and list(taken.iterdir()) == [taken / "tracking"]
    goes_on(went_on.run_dir, published, 2400)
    assert json.loads((went_on.run_dir / "tracking" / "run.json").read_text())["name"] == taken.name
    best = summary(published.whole)["best"]["checkpoint"]
    assert (went_on.run_dir / best).is_file() and not (tmp_path / "not here").exists()
    again = call(["--resume", str(went_on.run_dir)], tmp_path / "other")  # from here on a directory like any other
    assert again.code == 0 and len(metadata(went_on.run_dir)["segments"]) == 2


def test_what_cannot_go_on_is_refused_and_nothing_is_written(published, tmp_path, monkeypatch) -> None:
    reach(monkeypatch, published.server)
    lost = navrl.recovery.recover(NEWEST, REACH)  # fetched once for all of these
    monkeypatch.setattr(navrl.recovery, "recover", lambda reference, settings: lost)
    root = tmp_path / "runs"
    for flags, words in {
        ("--lr", "1e-3", "--seed", "9"): ("2 faults", "cannot become 0.001 on resume", "cannot become 9 on resume"),
        ("--total_env_steps", "400"): ("total_env_steps 400 is less than the 2800 steps already trained",),
        ("--config", "x.yaml"): ("leave out --config",),
        ("--lrr", "1"): ("nearest: --lr",),
    }.items():
        refused = call(["--resume", NEWEST, "--run_dir", str(root), *flags], root)
        assert refused.code == 2 and all(word in refused.err for word in words), refused.err
        assert not root.exists()
    parent = published.run_dir.relative_to(published.root).parent
    (root / parent / published.run_dir.name).mkdir(parents=True)
    refused = call(["--resume", NEWEST, "--run_dir", str(root), "--if_exists", "error"], root)
    assert refused.code == 2 and "is another run's" in refused.err
    assert [path.name for path in (root / parent).iterdir()] == [published.run_dir.name]
    refused = call(["--resume", NEWEST, "--run_dir", str(tmp_path / ("x" * 300))], root)  # longer than a name may be
    assert refused.code == 2 and "run_dir: cannot write" in refused.err and "1 fault" in refused.err


def test_a_best_that_the_tracker_lost_is_said_and_not_made_up(published, tmp_path, monkeypatch) -> None:
    reach(monkeypatch, published.server)

    def alone(*arguments: Any, **named: Any) -> list[Any]:
        return fetch(*arguments, **named)[:1]

    monkeypatch.setattr(navrl.recovery, "fetch", alone)
    lost = navrl.recovery.recover(NEWEST, REACH)
    assert len(lost.files) == 1 and not any(best for *_, best in lost.files)
    assert "best checkpoint so far" in lost.notices[0] and "is not in the tracker" in lost.notices[0]


PUBLISH_ODD = """
import pathlib, wandb
run = wandb.init(project="NAVRL", dir="{0}", settings=wandb.Settings(silent=True, console="off", x_disable_stats=True))
for name, files in dict(two=["checkpoint_ep1.pt", "checkpoint_ep2.pt"], none=["data.csv"], bare=["checkpoint_ep1.pt"]).items():
    artifact = wandb.Artifact(name, type="model")
    for file in files:
        path = pathlib.Path("{0}", file)
        path.write_bytes(b"no checkpoint")
        artifact.add_file(str(path))
    run.log_artifact(artifact)
run.finish()
"""


def test_wandb_faults_are_one_line_each(published, tmp_path, monkeypatch) -> None:
    reach(monkeypatch, published.server)
    odd = tmp_path / "odd"
    odd.mkdir()
    env = tracking_run.environment(odd / "home", **published.server.variables)
    subprocess.run([sys.executable, "-c", PUBLISH_ODD.format(odd)], env=env, cwd=odd, check=True, timeout=60)
    for artifact, words in {
        f"{MODEL}:nope": "not found",
        "other:latest": "not found",
        "two:latest": "holds 2 checkpoints; name one: checkpoint_ep1.pt, checkpoint_ep2.pt",
        "none:latest": "there is no checkpoint",
        "bare:latest": "NAVRL did not publish it",
    }.items():
        refused(f"wandb:local/NAVRL/{artifact}", words, tmp_path)
    published.server.fault("damage")
    refused(f"{WANDB}:v0", "is damaged: its SHA-256 is not the one that was published", tmp_path)
    published.server.fault("401")
    refused(f"{WANDB}:v0", "Failed to verify credentials", tmp_path)
    published.server.fault("none")
    refused(f"{WANDB}:v0", "privacy: strict asks no W&B server", tmp_path, privacy="strict")
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{free_port()}")
    refused(f"{WANDB}:v0", "does not answer", tmp_path)
    monkeypatch.delenv("WANDB_API_KEY")
    refused(f"{WANDB}:v0", "log in with `wandb login`", tmp_path)


def refused(reference: str, words: str, tmp_path: Path, **settings: Any) -> None:
    directory = tmp_path / "fetched"
    directory.mkdir()
    with pytest.raises(FetchError) as raised:
        fetch(reference, directory, REACH | settings)
    shutil.rmtree(directory)
    message = str(raised.value)
    assert words in message and reference in message and "\n" not in message, message


def test_a_server_that_hangs_is_given_up_and_a_killed_program_leaves_nothing(published, tmp_path, monkeypatch) -> None:
    reach(monkeypatch, published.server)
    published.server.fault("hang")
    monkeypatch.setattr(fetching, "PATIENCE", 2.0)
    began = time.monotonic()
    code, _, err = evaluate("--checkpoint", NEWEST)
    assert code == 2 and "nothing has come from the server for 2 s" in err and time.monotonic() - began < 60
    # killed amid it, the program leaves no process and no file
    scratch = tmp_path / "of a killed one"
    scratch.mkdir()
    env = {**tracking_run.environment(tmp_path / "home", **published.server.variables), "TMPDIR": str(scratch)}
    process = subprocess.Popen([sys.executable, str(ROOT / "scripts" / "evaluate.py"), "--checkpoint", NEWEST],
                               env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    wait_for(lambda: list(scratch.rglob("tracking")))  # its client is at work
    process.kill()
    process.wait()
    wait_for(lambda: not list(scratch.glob("navrl-*")) and not tracking_run.processes_with(str(tmp_path / "home")))
    published.server.fault("none")


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_the_proxy_is_wandbs_alone(published, tmp_path, monkeypatch) -> None:
    reach(monkeypatch, published.server)
    proxy = CountingProxy(published.server.url)
    try:
        monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.invalid")  # whatever arrives came through the proxy
        before = dict(os.environ)
        address = f"http://user:pa55w0rd@127.0.0.1:{proxy.server_port}"
        (found,) = fetch(f"{WANDB}:v0", tmp_path, REACH | {"wandb_proxy": address})
        assert found.about.step == 800 and len(proxy.paths) > 4 and os.environ == before
        assert not any(b"pa55w0rd" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        count = len(proxy.paths)
        refused("mlflow:models:/a@b", "does not answer", tmp_path, wandb_proxy=address,
                mlflow_tracking_uri=f"http://127.0.0.1:{free_port()}")  # fmt: skip
        assert len(proxy.paths) == count
    finally:
        proxy.shutdown()
        proxy.server_close()


# ---- MLflow


# Put on a client's path: every address that a Python process looks up or connects to is written down.
WATCH = """
import os, sys
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        with open(os.environ["WATCHED"], "a") as file:
            file.write(f"{arguments[1] if event == 'socket.connect' else arguments[0]}\\n")
sys.addaudithook(hook)
"""


def test_evaluating_a_model_version_of_the_store_beside_the_runs_asks_nobody(published, tmp_path, monkeypatch) -> None:
    watch = tmp_path / "watch"
    watch.mkdir()
    (watch / "sitecustomize.py").write_text(WATCH)
    monkeypatch.setenv("PYTHONPATH", str(watch))
    monkeypatch.setenv("WATCHED", str(watch / "addresses"))
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:1")
    monkeypatch.setenv("NAVRL_RUNS", str(published.root))
    code, table, err = evaluate("--checkpoint", f"mlflow:models:/{MODEL}@newest", "--privacy", "strict")
    assert code == 0, err
    assert not (watch / "addresses").exists(), (watch / "addresses").read_text()
    assert evaluate("--checkpoint", str(CheckpointStore(published.copy / "checkpoints").path("last"))) == (0, table, "")


def test_a_run_goes_on_from_an_artifact_of_an_mlflow_server(published, tmp_path, monkeypatch) -> None:
    """Its rows are there once, and every model version is still the file that it was."""
    server = mlflow_tools.Server(tmp_path / "server", mlflow_tools.empty_store(tmp_path / "server.db"))
    try:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        env = tracking_run.environment(tmp_path / "home", MLFLOW_TRACKING_URI=server.url)
        assert tracking_run.sync(env, published.copy, "mlflow").returncode == 0
        store = mlflow_tools.client(server.url)
        (run,) = mlflow_tools.runs(store, f"tags.`navrl.uid` = '{published.uid}'")
        run_id = run.info.run_id
        went_on = resume(f"mlflow:runs:/{run_id}/checkpoints/checkpoint_ep32", "--run_dir", str(tmp_path / "runs"),
                         "--logger", "console", "mlflow", "--no_log_wandb")  # fmt: skip
        assert went_on.code == 0, went_on.err
        goes_on(went_on.run_dir, published, 800)
        sent = mlflow_tools.rows(store, run_id)
        assert sorted(sent) == [row["step"] for row in rows(published.whole)]
        for row in rows(published.whole):
            assert {name: sent[row["step"]][name] for name in row if name != "step"} == {
                name: value for name, value in row.items() if name != "step"}  # fmt: skip
        versions = store.search_model_versions(f"run_id = '{run_id}'")
        assert len(versions) > 5 and len({version.source for version in versions}) == len(versions)
        for version in versions:
            folder = version.source.removeprefix(f"runs:/{run_id}/")
            (file,) = store.list_artifacts(run_id, folder)
            content = mlflow_tools.download(server.url, run_id, file.path, tmp_path / "files" / version.version)
            assert version.tags["sha256"] == hashlib.sha256(content).hexdigest()
    finally:
        server.kill()


def test_mlflow_faults_are_one_line_each(published, tmp_path, monkeypatch) -> None:
    store = f"sqlite:///{published.root / 'mlflow.db'}"
    refused(f"mlflow:models:/{MODEL}@latest", "it has best, ", tmp_path, mlflow_tracking_uri=store)
    (run,) = mlflow_tools.runs(mlflow_tools.client(store), f"tags.`navrl.uid` = '{published.uid}'")
    several = "the run holds 5 checkpoints; name one: checkpoints/checkpoint_ep32/checkpoint_ep32.pt, "
    refused(f"mlflow:runs:/{run.info.run_id}", several, tmp_path, mlflow_tracking_uri=store)
    (tmp_path / "text.db").write_text("no database" * 100)
    (tmp_path / "empty.db").touch()
    for uri, words in {
        f"sqlite:///{tmp_path}/missing.db": "name it with --mlflow_tracking_uri or MLFLOW_TRACKING_URI",
        f"sqlite:///{tmp_path}/text.db": "file is not a database",
        f"sqlite:///{tmp_path}/empty.db": "is no MLflow store",
        "file:///somewhere": "is no database and no server",
        f"http://127.0.0.1:{free_port()}": "does not answer",
    }.items():
        refused("mlflow:models:/name@best", words, tmp_path, mlflow_tracking_uri=uri)
    assert (tmp_path / "empty.db").stat().st_size == 0 and not (tmp_path / "missing.db").exists()
    refused("mlflow:models:/name/1", f"there is no sqlite:///{tmp_path}/mlflow.db", tmp_path, run_dir=str(tmp_path))
    refused("mlflow:models:/name/1", "privacy: strict reads nothing from", tmp_path, privacy="strict",
            mlflow_tracking_uri="http://user:pa55w0rd@mlflow.example.org")  # fmt: skip
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "mlflow.py").write_text("raise ImportError('not here')")
    monkeypatch.setattr(fetching, "__file__", str(ROOT / "navrl" / "tracking" / "fetch.py"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    refused("mlflow:models:/name/1", "MLflow is not installed", tmp_path, mlflow_tracking_uri=store)


@pytest.mark.parametrize("reference", [
    "wandb:", "wandb:a", "wandb:entity/project/artifact", "wandb:entity/project/artifact:", "wandb:a/b/c/d:e",
    "mlflow:", "mlflow:models:/name", "mlflow:models:/name/latest", "mlflow:models:/name@", "mlflow:name@best",
    "mlflow:runs:/", "mlflow:runs:/abc/../../etc", "mlflow:runs:/abc//x", "wandb:e/p/a:b\0",
])  # fmt: skip
def test_a_reference_that_is_none_names_the_forms_in_both_programs(reference: str, tmp_path: Path) -> None:
    tracker = reference.partition(":")[0]
    resumed = call(["--resume", reference, "--run_dir", str(tmp_path / "runs")], tmp_path)
    code, _, err = evaluate("--checkpoint", reference)
    for found, text in ((resumed.code, resumed.err), (code, err)):
        assert found == 2 and "Traceback" not in text
        assert all(form in text for form in fetching.FORMS[tracker]) or "\0" in reference
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", fetching.FORMS)
def test_a_directory_may_have_a_trackers_name(published, tmp_path, monkeypatch, name) -> None:
    shutil.copytree(published.copy, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    code, table, err = evaluate("--checkpoint", name)
    assert code == 0 and table, err


def test_how_a_tracker_is_reached_is_no_setting_of_a_local_evaluation(published) -> None:
    code, _, err = evaluate("--checkpoint", str(published.copy), "--mlflow_tracking_uri", "http://127.0.0.1:1")
    assert code == 2 and "mlflow_tracking_uri: an evaluation takes settings of the task only" in err


def test_both_help_texts_name_the_forms() -> None:
    for program in ("main.py", "scripts/evaluate.py"):
        text = subprocess.run([sys.executable, str(ROOT / program), "--help"], capture_output=True, text=True).stdout
        assert all(form in text for forms in fetching.FORMS.values() for form in forms), program
