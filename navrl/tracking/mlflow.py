"""MLflow: an experiment a project, a parent run a group, each run of the group as its child.

The store is an SQLite file beside the runs, any other database, or a server: `mlflow_tracking_uri`. Everything sent has
an identity of its own there (a metric its step and time, an artifact its path, a trace its id), so that sending twice,
also from another copy of the run directory, is sending once.
"""
from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from navrl.files import replacing
from navrl.redaction import HIDDEN, redact
from navrl.tracking.convert import flat, json_ready
from navrl.tracking.episodes import ACTED, episode_arrays
from navrl.tracking.probe import answers
from navrl.tracking.record import RunLock, read_events
from navrl.tracking.stores import fault_of_store, on_this_machine
from navrl.tracking.tracker import Receipt, RunInfo, Tracker, TrackerUnavailable

PARAM_LENGTH, TAG_LENGTH, MAX_NAME = 6000, 5000, 250        # characters that every MLflow 3 server takes
METRICS_A_CALL, PAIRS_A_CALL = 1000, 100          # its limits for one `log_batch`
PAUSES = (1, 2, 4, 8, 15)                         # seconds between tries while the server is away
LOCK_WAIT = 120.0                                 # others may be making the tables, seven seconds of work each time
STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}                  # all else is FAILED
ALIASES = {"latest": "newest"}                    # MLflow keeps `latest` to itself
HOPELESS = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED", "UNAUTHENTICATED"}
STORE = "mlflow.db"                               # the default store, beside the runs
PARENT_OF, UID = "navrl.parent_of", "navrl.uid"   # tags that say which runs are whose
RUN_PARENT, LOGGED_ARTIFACTS = "mlflow.parentRunId", "mlflow.loggedArtifacts"     # MLflow's own


class MlflowTracker(Tracker):
    name = "mlflow"

    def __init__(self) -> None:
        self._client: Any = None
        self._artifacts: Path | None = None       # this run's, where they are on this machine
        self._rows: list[Any] = []                # metrics not yet handed over
        self._held: set[int] = set()              # steps that the store had when we came
        self._odd: dict[str, str] = {}            # tags of metrics that were infinite
        self._tables: list[str] = []
        self._calls = 0                           # answered
        self._last_wall: float | None = None

    # ---- start

    def start(self, run: RunInfo) -> int | None:
        keep_to_itself()
        try:
            import mlflow
        except ImportError:
            raise TrackerUnavailable("not installed, nothing goes to MLflow; `pip install mlflow==3.17.2`, then "
                                     f"publish with: python scripts/sync.py {run.run_dir} --to mlflow") from None
        self._run, self._live = run, run.training_pid is not None
        uri, root = store_address(run), run_root(run)
        if run.settings.get("privacy") == "strict" and not on_this_machine(uri):
            raise TrackerUnavailable(f"privacy: strict sends nothing to {redact(uri)}; leave mlflow_tracking_uri out "
                                     "for a file beside the runs")
        if uri.startswith("http") and not answers(uri):
            raise ConnectionError(f"{redact(uri)} does not answer")
        mlflow.set_tracking_uri(uri)
        with _alone_with(uri):
            self._client = mlflow.MlflowClient(tracking_uri=uri)
            self._open(run, _artifact_root(uri, root))
        # The run's own id comes first: it is what makes the place of one run differ from that of another.
        self.destination = f"{self._run_id} {redact(uri)}"
        self.url = (f"{redact(uri).rstrip('/')}/#/experiments/{self._experiment}/runs/{self._run_id}"
                    if uri.startswith("http") else f"mlflow ui --backend-store-uri {redact(uri)}")
        return None

    def _open(self, run: RunInfo, artifacts: str | None) -> None:
        from mlflow.exceptions import MlflowException
        try:
            self._experiment = self._find_experiment(run.project[:MAX_NAME], artifacts)
        except MlflowException as error:
            if error.get_http_status_code() in (401, 403):
                raise TrackerUnavailable("the server refuses us; set MLFLOW_TRACKING_USERNAME and "
                                         "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, and publish with: "
                                         f"python scripts/sync.py {run.run_dir} --to mlflow") from None
            raise
        parent = self._one_parent()
        found = self._search(f"tags.`{UID}` = '{run.uid}'")
        if found:
            self._run_id = found[0].info.run_id
            self._held = {point.step for point in self._client.get_metric_history(self._run_id, "time")}
        else:
            started = int(1000 * (run.started or time.time()))
            self._run_id = self._client.create_run(self._experiment, start_time=started, run_name=run.name[:MAX_NAME],
                                                   tags={UID: run.uid, RUN_PARENT: parent}).info.run_id
            for twin in self._search(f"tags.`{UID}` = '{run.uid}'"):
                if twin.info.run_id != self._run_id:             # a call that was answered too late, and made again
                    self._client.delete_run(twin.info.run_id)
        self._join_parent()
        if self._live:
            for run_id in (self._run_id, self._parent):
                self._client.update_run(run_id, status="RUNNING")
        now = self._client.get_run(self._run_id)
        self._artifacts = _local_directory(now.info.artifact_uri)
        self._describe(run, now.data.params)
        self._tables = [entry["path"] for entry in json.loads(now.data.tags.get(LOGGED_ARTIFACTS, "[]"))]

    def _find_experiment(self, name: str, artifacts: str | None) -> str:
        from mlflow.exceptions import MlflowException
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return self._client.create_experiment(name, artifact_location=artifacts)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":        # else another seed was faster
                    raise
                experiment = self._client.get_experiment_by_name(name)
        if experiment.lifecycle_stage != "active":
            raise TrackerUnavailable(f"experiment {name!r} is deleted in MLflow; restore it with `mlflow experiments "
                                     f"restore --experiment-id {experiment.experiment_id}`, or change project_name")
        return experiment.experiment_id

    # ---- the parent run of the group

    def _join_parent(self) -> None:
        """Become a child of the group's parent. Looks again afterwards, for the parent may have changed meanwhile."""
        self._parent = None
        while self._parent != (parent := self._one_parent()):
            self._client.set_tag(self._run_id, RUN_PARENT, parent)
            self._parent = parent

    def _one_parent(self) -> str:
        """Id of the group's parent run; made where there is none, and of several all but the oldest are dissolved.

        No lock reaches all seeds of a group on a server. So whoever makes a parent looks at all there are afterwards,
        moves the children of the others to the oldest, and deletes the others; and whoever joins one looks again after
        joining. In any order of these steps the last look leaves one parent with all children.
        """
        group = hashlib.sha256(self._run.group.encode()).hexdigest()[:32]     # a group's name may hold quotes
        wanted = f"tags.`{PARENT_OF}` = '{group}'"
        if not (parents := self._search(wanted)):
            self._client.create_run(self._experiment, start_time=int(1000 * (self._run.started or time.time())),
                                    run_name=self._run.group[:MAX_NAME],
                                    tags={PARENT_OF: group, "group": self._run.group[:TAG_LENGTH]})
            parents = self._search(wanted)
        first, *others = sorted(parents, key=lambda run: (run.info.start_time, run.info.run_id))
        for other in others:
            for child in self._children(other.info.run_id):
                self._client.set_tag(child.info.run_id, RUN_PARENT, first.info.run_id)
            self._client.delete_run(other.info.run_id)
        return first.info.run_id

    def _children(self, parent: str) -> list[Any]:
        return self._search(f"tags.`{RUN_PARENT}` = '{parent}'")

    def _search(self, wanted: str) -> list[Any]:
        return list(self._client.search_runs([self._experiment], wanted, max_results=10_000))

    # ---- what a run is

    def _describe(self, run: RunInfo, known: Mapping[str, str]) -> None:
        """Parameters, tags, and the longer texts as artifacts. A parameter that has changed since is a tag."""
        from mlflow.entities import Param, RunTag
        strict = run.settings.get("privacy") == "strict"
        tags = {"group": run.group, "seed": run.settings.get("seed", run.config.get("seed")), "env_id": run.env_id,
                "algorithm_name": run.algorithm_name, "tags": ", ".join(run.tags)}
        params: dict[str, str] = {}
        for name, value in run.config.items():
            name = mlflow_name(name)
            text = whole = _text(value)
            if len(text) > PARAM_LENGTH:
                text = f"{text[:200]}... (whole in the artifact config/{name}.txt)"
                self._patiently(self._client.log_text, self._run_id, whole, f"config/{name}.txt")
            if name not in known:
                params[name] = text
            elif known[name] != text:
                tags[f"changed.{name}"] = text
        if not strict:
            tags |= {f"metadata.{name}": value for name, value in flat(run.metadata).items()}
            tags["mlflow.source.git.commit"] = run.metadata.get("git_commit")
            diffs = sorted(path.name for path in run.run_dir.glob("code*.diff"))    # one more where a resume changed it
            for name in ("config.yaml", "metadata.json", *diffs):
                self._keep_text(name)
        pairs = [RunTag(mlflow_name(name), _text(value)[:TAG_LENGTH]) for name, value in tags.items()
                 if value not in (None, "")]
        entries = [Param(name, text) for name, text in params.items()]
        for i in range(0, max(len(pairs), len(entries)), PAIRS_A_CALL // 2):
            part = slice(i, i + PAIRS_A_CALL // 2)
            self._patiently(self._client.log_batch, self._run_id, params=entries[part], tags=pairs[part])

    def _keep_text(self, name: str) -> None:
        """A text file of the run directory as an artifact, with what is there now."""
        path = self._run.run_dir / name
        if path.is_file() and path.stat().st_size:
            text = path.read_text(encoding="utf-8", errors="replace")
            self._patiently(self._client.log_text, self._run_id, redact(text), name)

    # ---- the run

    def log_row(self, step: int, wall: float, metrics: Mapping[str, int | float]) -> None:
        self._last_wall = wall
        if step in self._held and "time" in metrics:      # without it: what a resume added to a row
            return
        values = {mlflow_name(name): self._finite(mlflow_name(name), value, step) for name, value in metrics.items()}
        if "time" in values:
            values["time"] = values.pop("time")   # last of all: where it is, the row is whole
        self._add(values, step, wall)
        if len(self._rows) >= METRICS_A_CALL:
            self.flush()

    def _add(self, values: Mapping[str, float], step: int, wall: float) -> None:
        from mlflow.entities import Metric
        self._rows += [Metric(name, value, int(1000 * wall), int(step)) for name, value in values.items()]

    def _finite(self, name: str, value: int | float, step: int) -> float:
        """MLflow takes NaN but makes 1.8e308 of an infinity, which ruins a chart: so it is NaN, and a tag says it."""
        if not math.isinf(value):
            return float(value)
        self._odd.setdefault(f"nonfinite.{name}"[:MAX_NAME], f"{'+' if value > 0 else '-'}Infinity at step {step}")
        return math.nan

    def flush(self) -> None:
        while self._rows:
            part = self._rows[:METRICS_A_CALL]
            self._patiently(self._client.log_batch, self._run_id, metrics=part)
            del self._rows[:len(part)]
        for name in list(self._odd):
            if self._odd[name]:
                self._patiently(self._client.set_tag, self._run_id, name, self._odd[name])
                self._odd[name] = ""

    def log_media(self, step: int, wall: float, name: str, path: Path, caption: str | None) -> None:
        folder = f"media/{mlflow_name(name)}/step_{step}"
        self._keep_file(path, folder)
        if caption:
            self._patiently(self._client.log_text, self._run_id, caption, f"{folder}/{path.name}.txt")

    def log_table(self, step: int, wall: float, name: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        """As `mlflow.log_table` writes them (pandas' `split`), one file a step: its own appends, and so repeats."""
        path = f"tables/{mlflow_name(name)}/step_{step}.json"
        table = {"columns": list(columns), "data": json_ready([list(row) for row in rows])}
        self._patiently(self._client.log_text, self._run_id, json.dumps(table, allow_nan=False), path)
        if path not in self._tables:
            self._tables.append(path)
            shown = json.dumps([{"path": path, "type": "table"} for path in self._tables])
            if len(shown) <= TAG_LENGTH:          # the page's list of tables; all of them are among the artifacts
                self._patiently(self._client.set_tag, self._run_id, LOGGED_ARTIFACTS, shown)

    def log_trace(self, step: int, wall: float, name: str, path: Path) -> None:
        self._keep_file(path, f"media/{mlflow_name(name)}/step_{step}")
        if self._run.settings.get("trace") == "mlflow":
            from mlflow.tracing.client import TracingClient
            client = TracingClient(self._client.tracking_uri)
            info, spans = episode_trace(path, name=name, step=step, wall=wall, experiment=self._experiment,
                                        run_id=self._run_id, run=self._run)
            self._patiently(client.log_spans, self._experiment, spans)
            self._patiently(client.start_trace, info)

    def log_artifact(self, path: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> Receipt | None:
        """The file in a directory of its own, and a version of the registered model that points there."""
        folder = self._patiently(self._folder, path, metadata)
        self._keep_file(path, folder)
        version = self._patiently(self._model_version, folder, metadata)
        for alias in aliases:
            alias = re.sub(r"[^\w-]", "_", ALIASES.get(alias, alias), flags=re.ASCII)[:MAX_NAME]
            self._patiently(self._client.set_registered_model_alias, self._run.artifact_name, alias, version)
        return None

    def _folder(self, path: Path, metadata: Mapping[str, Any]) -> str:
        """Where no version of the run points with another digest: a checkpoint that was made again replaces none."""
        folder = f"checkpoints/{path.stem}"
        for version in self._client.search_model_versions(f"run_id = '{self._run_id}'"):
            if version.source == f"runs:/{self._run_id}/{folder}" and version.tags.get("sha256") != metadata["sha256"]:
                return f"{folder}-{metadata['sha256'][:8]}"
        return folder

    def _keep_file(self, path: Path, folder: str) -> None:
        """An artifact. Where artifacts are on this disk it is a second name of the file, which no second copy needs.

        Files of a run are replaced, never changed; so what either name leads to stays what it is.
        """
        if self._artifacts is not None:
            target = self._artifacts / folder / path.name
            try:
                if not (target.exists() and target.samefile(path)):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(target) as link:
                        os.link(path, link)
            except OSError:                       # another disk, or one without such names: MLflow copies it
                pass
        self._patiently(self._client.log_artifact, self._run_id, str(path), folder)     # nothing, where it is the same

    def _model_version(self, folder: str, metadata: Mapping[str, Any]) -> str:
        from mlflow.exceptions import MlflowException
        name, source = self._run.artifact_name, f"runs:/{self._run_id}/{folder}"
        for version in self._client.search_model_versions(f"run_id = '{self._run_id}'"):
            if (version.name, version.source, version.tags.get("sha256")) == (name, source, metadata.get("sha256")):
                return version.version
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        tags = {key: _text(value) for key, value in metadata.items() if value is not None}
        return self._client.create_model_version(name, source, self._run_id, tags=tags, await_creation_for=0).version

    def alert(self, title: str, text: str, level: str, step: int | None) -> None:
        text = f"{level}: {text}" if step is None else f"{level}: step {step}: {text}"
        self._patiently(self._client.set_tag, self._run_id, mlflow_name(f"alert.{title}"), text[:TAG_LENGTH])
        file = re.sub(r"\W+", "_", f"step_{step or 0}_{title}")[:100]
        self._patiently(self._client.log_text, self._run_id, f"{title}\n{text}\n", f"alerts/{file}.txt")

    # ---- how far it is, and the end

    def directories(self) -> list[Path]:
        return [self._artifacts] if self._artifacts is not None else []

    def progress(self) -> float:
        """Answers of the store, and what this process has read: an upload is one answer, however long it takes."""
        try:
            with open("/proc/self/io", encoding="ascii") as file:
                return self._calls + int(file.readline().split()[1]) // 2**20
        except (OSError, ValueError, IndexError):
            return self._calls

    def finish(self, status: str, exit_code: int, summary: Mapping[str, Any]) -> None:
        self.flush()
        if status == "running":                   # published while it goes on
            return
        if self._run.settings.get("privacy") != "strict":
            self._keep_text("metadata.json")      # now with how and when it ended
        ended = self._ended()
        for part, section in (("final", "final"), ("best", "final_best")):      # the page's charts begin with eval/
            values = {f"{section}/{name}": value for name, value in flat(summary.get(part)).items()}
            step = values.pop(f"{section}/step", 0)
            self._add({mlflow_name(name): self._finite(mlflow_name(name), value, step) for name, value in values.items()
                       if isinstance(value, (int, float))}, step, ended or 0)
        self.flush()
        for name, value in (("status", status), ("exit_code", exit_code)):
            self._patiently(self._client.set_tag, self._run_id, name, value)
        end = int(1000 * ended) if ended else None
        self._patiently(self._client.set_terminated, self._run_id, STATUS.get(status, "FAILED"), end)
        self._join_parent()
        self._patiently(self._end_parent, end)

    def _end_parent(self, end: int | None) -> None:
        """The last run of the group that ends gives the parent its status: the worst of its children's."""
        statuses = {child.info.status for child in self._children(self._parent)}
        if "RUNNING" not in statuses and "SCHEDULED" not in statuses:
            worst = next((status for status in ("FAILED", "KILLED") if status in statuses), "FINISHED")
            self._client.set_terminated(self._parent, worst, end)

    def _ended(self) -> float | None:
        """Wall time at which the run ended; of one that was killed, when it was last heard of."""
        ends = [event["wall"] for event in read_events(self._run.run_dir) if event.get("event") == "finish"]
        return ends[-1] if ends else self._last_wall

    def _patiently(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call the store; again after a pause, as long as the training run lasts, where waiting can help."""
        tries = 0
        while True:
            try:
                answer = call(*arguments, **named)
                self._calls += 1
                return answer
            except Exception as error:
                hopeless = isinstance(error, (TypeError, ValueError)) or getattr(error, "error_code", "") in HOPELESS
                watched = self._live and os.getppid() == self._run.training_pid
                if hopeless or (tries >= 3 and not watched):
                    raise
                self.say(f"mlflow: the store fails ({type(error).__name__}); "
                         + ("training goes on, " if self._live else "") + "trying again")
                time.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
                tries += 1


# ------------------------------------------------------------------------------------------ where the store is


def store_address(run: RunInfo) -> str:
    """Address of the store: what the run was told; for a run that is over, what MLFLOW_TRACKING_URI says now.

    Default: `mlflow.db` in the directory that holds the runs. A relative SQLite path counts from where the command was
    given. Raises TrackerUnavailable for what is no database and no server.
    """
    told, said = run.settings.get("mlflow_tracking_uri"), os.environ.get("MLFLOW_TRACKING_URI")
    uri = (told or said) if run.training_pid is not None else (said or told)
    if not uri and HIDDEN in str(_stored_setting(run.run_dir)):
        raise TrackerUnavailable("the address of this run's store held a password, which is never kept; set "
                                 "MLFLOW_TRACKING_URI and publish again")
    return usable_address(uri) if uri else default_address(run_root(run))


def default_address(root: Path) -> str:
    """Address of the store of the runs under `root`, an absolute path."""
    return f"sqlite:///{root / STORE}"


def usable_address(uri: str) -> str:
    """An address as it holds from any directory. Raises TrackerUnavailable for what is no database and no server."""
    if fault := fault_of_store(uri):
        raise TrackerUnavailable(f"mlflow_tracking_uri: {redact(uri)!r} {fault}")
    if uri.startswith("sqlite"):
        path = Path(uri.split("///", 1)[-1])
        return f"sqlite:///{path if path.is_absolute() else Path(os.environ.get('PWD', '.')) / path}"
    return uri


def run_root(run: RunInfo) -> Path:
    """The directory that holds the runs; of a run directory that was moved away from them, its `tracking/mlflow`."""
    around = run.run_dir.parent.parent.parent
    if run.training_pid is not None or (around / STORE).exists():
        return around
    from navrl.naming import runs_root            # with the whole schema behind it: not while a run trains
    return runs_root(run.run_dir, run.project, run.group) or run.run_dir / "tracking" / "mlflow"


def _stored_setting(run_dir: Path) -> Any:
    try:
        stored = json.loads((run_dir / "tracking" / "run.json").read_text(encoding="utf-8"))
        return stored["settings"].get("mlflow_tracking_uri")
    except (OSError, ValueError, KeyError):
        return None


def _local_directory(address: str) -> Path | None:
    """The directory that a `file:` address names; None for any other."""
    parts = urllib.parse.urlsplit(address)
    return Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None


def _artifact_root(uri: str, root: Path) -> str | None:
    """Where artifacts go when no server keeps them; MLflow's default is the current directory."""
    if uri.startswith("http"):
        return None
    beside = Path(uri.split("///", 1)[1]).parent if uri.startswith("sqlite") else root
    return (beside / "mlartifacts").as_uri()


@contextmanager
def _alone_with(uri: str) -> Iterator[None]:
    """Of the processes that open a database one at a time: tables made by two at once break both."""
    if uri.startswith("sqlite"):
        path = Path(uri.split("///", 1)[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = RunLock(path.with_name(path.name + ".lock"), patience=LOCK_WAIT)
        try:
            yield
        finally:
            lock.release()
    elif uri.startswith("postgresql"):
        import sqlalchemy
        engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.pool.NullPool, connect_args={"connect_timeout": 5})
        with engine.connect() as connection:      # an advisory lock goes with its connection
            connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(hashtext('navrl mlflow'))"))
            yield
    else:
        yield


def keep_to_itself() -> None:
    """Before the first import: no telemetry, bounded waits, no output; what the user has set stays."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    for variable, value in {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
        "MLFLOW_ASYNC_TRACE_LOGGING_RETRY_TIMEOUT": "10",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }.items():
        os.environ.setdefault(variable, value)


# ------------------------------------------------------------------------------------------ traces

def episode_trace(path: Path, *, name: str, step: int, wall: float, experiment: str, run_id: str,
                  run: RunInfo) -> tuple[Any, list[Any]]:
    """(`TraceInfo`, spans) of an episode: a root, and under it a span a step and agent, a millisecond each.

    Its id follows from run, step and name: the same episode is the same trace, however often it is sent.
    """
    from mlflow.entities import Span, TraceInfo, TraceLocation, TraceState
    arrays = episode_arrays(path)
    steps, agents = next(iter(arrays.values())).shape[:2]
    digest = hashlib.sha256(f"{run.uid} {step} {name}".encode()).hexdigest()
    trace_id = f"tr-{digest[:32]}"
    base = int(1000 * wall) * 1_000_000           # nanoseconds

    def span(number: int, title: str, kind: str, begin: int, end: int, inputs: Any, outputs: Any) -> Any:
        attributes = {"mlflow.traceRequestId": trace_id, "mlflow.spanType": kind, "mlflow.spanInputs": inputs,
                      "mlflow.spanOutputs": outputs}
        return Span.from_dict({
            "trace_id": trace_id, "span_id": f"{digest[:8]}{number:08x}",
            "parent_span_id": f"{digest[:8]}{1:08x}" if number > 1 else None, "name": title,
            "start_time_unix_nano": base + begin * 1_000_000, "end_time_unix_nano": base + end * 1_000_000,
            "status": {"code": "STATUS_CODE_OK", "message": ""}, "events": [],
            "attributes": {key: json.dumps(json_ready(value)) for key, value in attributes.items()}})

    rewards = next((arrays[key] for key in ("reward", "rewards") if key in arrays), None)
    asked = {"run": run.name, "episode": name, "step": step, "steps": steps, "agents": agents}
    total = {} if rewards is None else {"episode_reward": float(rewards.sum(axis=0).mean())}
    spans = [span(1, name, "AGENT", 0, steps, asked, total)]
    for t in range(steps):
        for agent in range(agents):
            seen = {key: array[t, agent].tolist() for key, array in arrays.items() if key not in ACTED}
            did = {key: array[t, agent].tolist() for key, array in arrays.items() if key in ACTED}
            spans.append(span(len(spans) + 1, f"step {t + 1} agent {agent}", "AGENT", t, t + 1, seen, did))
    info = TraceInfo(trace_id=trace_id, trace_location=TraceLocation.from_experiment_id(experiment),
                     request_time=int(1000 * wall), state=TraceState.OK, execution_duration=steps,
                     request_preview=json.dumps(asked), response_preview=json.dumps(total),
                     trace_metadata={"mlflow.sourceRun": run_id, "mlflow.trace_schema.version": "3"},
                     tags={"mlflow.traceName": name, UID: run.uid, "step": str(step)})
    return info, spans


# ------------------------------------------------------------------------------------------ small things

def mlflow_name(name: str) -> str:
    """A name that MLflow takes, for metrics and parameters, tags and artifact paths alike."""
    name = re.sub(r"[^\w/.\- ]", "_", str(name), flags=re.ASCII)
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))[:MAX_NAME] or "_"


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(json_ready(value))
