"""Sweeps of real runs: pruning, workers on one study that are killed, what is found in the end, and W&B's agent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import sweep_tools
import whole_runs
import yaml
from mlflow_tools import Postgres
from optuna.trial import TrialState
from read_wandb import read_run
from sweep_tools import METRIC, finish, kill, problems, records, sweep_file, trials_of, until, worker
from whole_runs import ROOT

from navrl.sweep import report, slots
from navrl.tracking.record import is_alive

sys.path.insert(0, str(ROOT / "scripts"))  # the programs, as modules
# 60 iterations, so that a kill meets it while it trains
LONGER = {"total_env_steps": 6000, "checkpoint_interval": 5, "eval_interval": 30}


def test_a_grid_is_run_and_its_worse_half_ends_early(tmp_path: Path) -> None:
    """The metric is the learning rate itself, so that which trial is worse is known."""
    file = sweep_file(
        tmp_path, {"lr_schedule": "constant"}, method="grid", metric={"name": "train/lr", "goal": "maximize"},
        parameters={"lr": {"values": [3.0e-3, 1.0e-3]}, "gamma": {"value": 0.95}},
        early_terminate={"type": "hyperband", "min_iter": 2, "eta": 3},
    )  # fmt: skip
    said = finish(worker(file, "--jobs", "1", "--", "--total_env_steps", "9000"))
    better, worse = trials_of(f"sqlite:///{tmp_path}/runs/sweeps.db")
    assert (better.state, better.value) == (TrialState.COMPLETE, 3e-3), said
    assert (worse.state, worse.value) == (TrialState.PRUNED, 1e-3), said
    assert len(better.intermediate_values) == 90 and 3 <= len(worse.intermediate_values) < 90
    runs = records(tmp_path / "runs")
    assert set(runs) == {"tiny/mappo_seed1_total_env_steps9e3_lr3e-3_gamma0.95",
                         "tiny/mappo_seed1_total_env_steps9e3_lr1e-3_gamma0.95"}  # fmt: skip
    ended = tmp_path / "runs" / "NAVRL" / "tiny" / "mappo_seed1_total_env_steps9e3_lr1e-3_gamma0.95"
    assert json.loads((ended / "summary.json").read_text())["status"] == "interrupted"  # it could be gone on with
    assert list((ended / "checkpoints").glob("*.pt"))


@pytest.mark.requires_service("postgresql")
@pytest.mark.usefixtures("no_code_copy")
def test_two_workers_on_one_server_lose_and_double_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """One is killed with its run and never comes back: the other takes the trial over. Then the report.

    benchmarks/sweep_soak.py does this with many trials and kills.
    """
    server = Postgres()
    try:
        file = sweep_file(tmp_path, LONGER, method="bayes")
        command = ("--trials", "1", "--jobs", "1", "--heartbeat", "1", "--storage", server.url)
        first = worker(file, *command)
        until(lambda: any(len(rows) > 10 for rows in records(tmp_path / "runs").values()))
        second = worker(file, *command)
        kill(first, with_runs=True)
        finish(second)
        trials = trials_of(server.url)
        assert problems(trials, tmp_path / "runs", total=1, seeds=1) == []
        (slot,) = slots.slots_of(trials)
        assert [trial.state for trial in slot.trials] == [TrialState.FAIL, TrialState.COMPLETE]
        (run_dir,) = whole_runs.run_dirs(tmp_path / "runs")
        assert [segment["step"] > 0 for segment in whole_runs.metadata(run_dir)["segments"]] == [False, True]  # resumed
        _the_best_is_ready_to_use(file, server.url, tmp_path, capsys)
    finally:
        server.close()


def _the_best_is_ready_to_use(file: Path, storage: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    import sweep_report

    capsys.readouterr()
    out = tmp_path / "report"
    assert sweep_report.main([str(file), "--storage", storage, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    (best,) = [trial for trial in trials_of(storage) if trial.state == TrialState.COMPLETE]
    assert f"best     trial 0: {best.value:.6g} (one seed)" in said
    assert "Importance needs 4 complete trials" in said and not (out / "importance.png").exists()
    written = yaml.safe_load((out / "best.yaml").read_text())
    tried = yaml.safe_load((tmp_path / "runs" / "NAVRL" / best.user_attrs["runs"][0] / "config.yaml").read_text())
    names = {"group", "experiment_name", "run_dir", "if_exists"}
    assert {k: v for k, v in written.items() if k not in names} == {k: v for k, v in tried.items() if k not in names}
    assert (written["group"], written["run_dir"]) == (None, "runs")
    run = whole_runs.call(["--config", str(out / "best.yaml"), "--seed", "9", "--run_dir", str(tmp_path / "again"),
                           "--total_env_steps", "100"], tmp_path / "again")  # fmt: skip
    assert run.code == 0, run.err
    assert f"seed9_total_env_steps100_lr{report.compact(best.params['lr'])}" in run.run_dir.name


def test_a_journal_is_enough_where_there_is_no_database(tmp_path: Path) -> None:
    """The worker alone dies; its run goes on, and whoever is given the command next waits for it."""
    storage = f"journal:{tmp_path}/study.journal"
    file = sweep_file(tmp_path, LONGER)
    command = ("--trials", "1", "--jobs", "1", "--storage", storage)
    first = worker(file, *command)
    until(lambda: any(len(rows) > 5 for rows in records(tmp_path / "runs").values()))
    kill(first, with_runs=False)
    (run_dir,) = whole_runs.run_dirs(tmp_path / "runs")
    assert is_alive(run_dir)
    finish(worker(file, *command))
    trials = trials_of(storage)
    assert problems(trials, tmp_path / "runs", total=1, seeds=1) == []
    assert [len(slot.trials) for slot in slots.slots_of(trials)] == [2]
    assert len(whole_runs.metadata(run_dir)["segments"]) == 1  # nothing was run twice


def test_a_signal_stops_a_sweep_and_the_same_command_goes_on(tmp_path: Path) -> None:
    file = sweep_file(tmp_path, LONGER)
    first = worker(file, "--trials", "1", "--jobs", "1")
    until(lambda: any(len(rows) > 5 for rows in records(tmp_path / "runs").values()))
    first.send_signal(signal.SIGTERM)
    finish(first, 143)
    (run_dir,) = whole_runs.run_dirs(tmp_path / "runs")
    assert not is_alive(run_dir)
    storage = f"sqlite:///{tmp_path}/runs/sweeps.db"  # where none is named
    assert [trial.state for trial in trials_of(storage)] == [TrialState.FAIL, TrialState.WAITING]
    finish(worker(file, "--trials", "1", "--jobs", "1"))
    assert problems(trials_of(storage), tmp_path / "runs", total=1, seeds=1) == []

    # The study's name and the trial's number decide what is drawn: with another study it is the run that is there.
    _a_trial_is_worth_the_mean_of_its_seeds(tmp_path, run_dir)
    _a_metric_that_is_never_logged_stops_a_sweep(tmp_path)


def _a_trial_is_worth_the_mean_of_its_seeds(tmp_path: Path, run_dir: Path) -> None:
    """Seed 2 is a copy of seed 1 whose rows were changed, one of them to a value that does not count."""
    twin = run_dir.with_name(run_dir.name.replace("seed1", "seed2"))
    shutil.copytree(run_dir, twin)
    config = (twin / "config.yaml").read_text()
    (twin / "config.yaml").write_text(config.replace("\nseed: 1\n", "\nseed: 2\n"))
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]
    logged = [row[METRIC] for row in rows if METRIC in row]
    others = [value - number for number, value in enumerate(logged)]
    for row, value in zip([row for row in rows if METRIC in row], others):
        row[METRIC] = value
    rows.insert(3, {"step": rows[3]["step"] - 1, METRIC: "NaN"})
    (twin / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    storage = f"sqlite:///{tmp_path}/seeds.db"
    said = finish(worker(sweep_file(tmp_path, LONGER), "--trials", "1", "--seeds", "1-2", "--storage", storage))
    (trial,) = trials_of(storage)
    assert trial.value == pytest.approx((logged[-1] + others[-1]) / 2, rel=1e-12), said
    assert trial.user_attrs["seeds"] == {"1": logged[-1], "2": others[-1]}
    means = [(one + other) / 2 for one, other in zip(logged, others)]
    assert trial.intermediate_values == pytest.approx(dict(enumerate(means)))
    shutil.rmtree(twin)


def _a_metric_that_is_never_logged_stops_a_sweep(tmp_path: Path) -> None:
    file = sweep_file(tmp_path, LONGER, metric={"name": "train/episode_rewards_mean", "goal": "maximize"})
    said = finish(worker(file, "--trials", "9", "--jobs", "1", "--storage", f"sqlite:///{tmp_path}/other.db"), 1)
    assert "nearest: train/episode_reward_mean" in said
    assert len(records(tmp_path / "runs")) == 1


def test_parameters_that_contradict_one_another_cost_their_trial_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    import sweep

    parameters = {"layer_norm": {"values": [True]}, "lr": {"values": [0.1, 0.2]}}
    file = sweep_file(tmp_path, method="grid", parameters=parameters)
    assert sweep.main([str(file), "--jobs", "1"]) == 1
    said = capsys.readouterr()
    assert said.err.count("network: entity has none") == 2
    trials = trials_of(f"sqlite:///{tmp_path}/runs/sweeps.db")
    assert [trial.state for trial in trials] == [TrialState.FAIL] * 2
    assert all("layer_norm" in trial.user_attrs[slots.REASON] for trial in trials)


def test_a_machine_that_is_unfit_costs_no_trial(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    import sweep

    file = sweep_file(tmp_path)
    assert sweep.main([str(file), "--trials", "2", "--jobs", "1", "--", "--device", "cuda:99"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "wait for another" in line and "device: 'cuda:99' is not on this machine" in line
    board = slots.slots_of(trials_of(f"sqlite:///{tmp_path}/runs/sweeps.db"))
    assert [[trial.state for trial in slot.trials] for slot in board] == [[TrialState.FAIL, TrialState.WAITING]]
    assert records(tmp_path / "runs") == {}


def test_another_sweep_does_not_join_a_study(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    import sweep

    file = sweep_file(tmp_path, method="grid", parameters={"layer_norm": {"values": [True]}})  # fails without a run
    assert sweep.main([str(file)]) == 1
    capsys.readouterr()
    assert sweep.main([str(file), "--", "--gamma", "0.5"]) == 2
    assert sweep.main([str(file), "--seeds", "1-2"]) == 2
    sweep_file(tmp_path, method="grid", parameters={"layer_norm": {"values": [True, False]}})
    assert sweep.main([str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    for line, word in zip(lines, ("gamma", "seeds", "parameters.layer_norm"), strict=True):
        assert f"is of another sweep ({word} differ)" in line


@pytest.mark.parametrize(
    "storage, cause",
    [("postgresql://navrl:secret@127.0.0.1:1/x", "Connection refused"), ("nonsense", "write sqlite:///FILE"),
     ("journal:/proc/x/y", "No such file"), ("sqlite:///here/x.db", "x.db.workers"), ("sqlite:x.db", "sqlite:///FILE"),
     ("mysql://navrl:secret@127.0.0.1/x", "postgresql://USER@HOST/DATABASE or journal:FILE")],
)  # fmt: skip
def test_a_study_that_cannot_be_had_is_one_line(
    storage: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sweep

    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x.db.workers").touch()  # no directory can be made there
    assert sweep.main([str(sweep_file(tmp_path)), "--trials", "1", "--storage", storage]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert cause in line and storage.partition("/")[0] in line and "secret" not in line


@pytest.mark.parametrize("kind", ["sqlite:///", "journal:"])
def test_a_report_finds_what_the_sweep_was_told_and_makes_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sweep
    import sweep_report

    monkeypatch.setenv("HOME", str(tmp_path))
    file = sweep_file(tmp_path, method="grid", parameters={"layer_norm": {"values": [True]}})  # fails without a run
    assert sweep_report.main([str(file), "--storage", f"{kind}~/typo/s", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/typo/s: no sweep was run there; say where with --storage\n"
    assert not (tmp_path / "typo").exists() and not (tmp_path / "out").exists()
    assert sweep.main([str(file), "--storage", f"{kind}~/s"]) == 1
    assert sweep_report.main([str(file), "--storage", f"{kind}~/s", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith("study NAVRL/tiny has no complete trial yet\n")


@pytest.mark.usefixtures("no_code_copy")
def test_wandbs_agent_calls_a_shipped_file_and_group_name_and_seed_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the agent does: the file's own command with its ``${args}`` and the sweep's environment variables.

    tests/test_sweep_trials_are_runs.py does so with the agent itself.
    """
    content = yaml.safe_load((ROOT / "configs" / "sweep" / "bayes_fine.yaml").read_text())
    args = {"lr": 0.00031415926535, "entropy_coef": 0.0012345, "gamma": 0.95, "mini_batch_size": 200, "gae_lambda": 0.9,
            "clip_param": 0.1}  # fmt: skip
    command = content["command"]
    given = [f"--{key}={value}" for key, value in args.items()]
    words = [*command[command.index("${program}") + 1 : command.index("${args}")], *given]
    parameters = tmp_path / "params.yaml"
    parameters.write_text(yaml.safe_dump({key: {"value": value} for key, value in args.items()}))
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(tmp_path / "home"), "WANDB_MODE": "offline", "WANDB_SWEEP_ID": "sw1", "WANDB_RUN_ID": "trial7",
        "WANDB_PROJECT": "ignored", "WANDB_SWEEP_PARAM_PATH": str(parameters),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    short = {**sweep_tools.TINY, "total_env_steps": 200, "seed": 3, "run_dir": str(tmp_path / "runs")}
    for key in ("mini_batch_size", "log_wandb", "logger"):  # of the sweep, and of the file that it starts from
        del short[key]
    run = whole_runs.call([*words, *(f"--{key}={value}" for key, value in short.items())], tmp_path / "runs")
    assert run.code == 0, run.err
    assert run.run_dir.parent.name == "sweep_bayes_fine"
    sent = read_run(run.run_dir)
    assert (sent["run"]["run_id"], sent["run"]["run_group"]) == ("trial7", "sweep_bayes_fine")
    name = json.loads((run.run_dir / "tracking" / "run.json").read_text())["name"]
    assert name.startswith(sent["run"]["display_name"]) and name.startswith("mappo_seed3_")  # W&B shows 128 characters
    for part in ("lr3.1415926535e-4", "entropy_coef0.0012345", "gamma0.95", "mini_batch_size200", "clip_param0.1"):
        assert part in name
    config = yaml.safe_load((run.run_dir / "config.yaml").read_text())
    assert {key: config[key] for key in args} == args and config["seed"] == 3
