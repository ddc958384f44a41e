"""Bad input ends ``python main.py`` with code 2 and one message that names it, before any directory is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_config_cases import ACCEPTED, CASES
from whole_runs import ROOT, Result, call, resume, run_dirs, summary, tiny_argv, train

from navrl.checkpoint import CheckpointStore
from navrl.config_sources import load as load_config
from navrl.naming import safe_directory
from navrl.tracking.record import RunLock

pytestmark = pytest.mark.usefixtures("no_code_copy")

REFUSED = sorted({path.name for path in CASES.iterdir()} - ACCEPTED)
# two iterations of the least there is
LEAST = ("--num_envs", "2", "--rollout_length", "5", "--total_env_steps", "20", "--eval_episodes", "1",
         "--final_eval_episodes", "1", "--hidden_size", "4")  # fmt: skip


def is_refusal(result: Result, *words: str) -> None:
    assert result.code == 2, result.err
    assert result.err.startswith("bad configuration, nothing was started (") and "Traceback" not in result.err
    for word in words:
        assert word in result.err, (word, result.err)
    assert result.out == "" and not result.root.exists()


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file(name: str, tmp_path: Path) -> None:
    is_refusal(call(["--config", str(CASES / name), "--run_dir", str(tmp_path / "runs")], tmp_path / "runs"), name)


@pytest.mark.parametrize("name", sorted(ACCEPTED - {"missing_device.yaml"}))
def test_a_file_that_others_choke_on_trains(name: str, tmp_path: Path) -> None:
    result = call(["--config", str(CASES / name), *LEAST, "--no_log_wandb", "--num_workers", "0", "--run_dir",
                   str(tmp_path)], tmp_path)  # fmt: skip
    assert result.code == 0, result.err
    assert summary(result.run_dir)["status"] == "finished"
    said = result.out + result.err
    assert ("your_account_or_team_name" in said) == (name == "placeholder_entity.yaml")
    assert ("every key takes its default" in said) == (name in ("empty.yaml", "only_comments.yaml"))
    if name == "bom_crlf_utf8.yaml":
        assert result.run_dir.parent.name == "对比实验"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_says_which_are(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    given = [*tiny_argv(runs), "--config", str(CASES / "missing_device.yaml")]
    is_refusal(call(given, runs), "device", "'cuda", "is not on this machine; there is: cpu")


@pytest.mark.parametrize(("flags", "words"), [
    (("--lrr", "3"), ("--lrr", "nearest", "lr")),
    (("--lr", "abc"), ("lr", "'abc'", "a number > 0")),
    (("--num_agents", "0"), ("num_agents", "0", ">= 1")),
    (("--seed", "1.5"), ("seed", "1.5")),
    (("--config", "no/such/file.yaml"), ("no/such/file.yaml",)),
    (("--config", "."), ("directory",)),
    (("--env_id", "simple_sprad"), ("env_id", "simple_spread")),
    (("--env_id", "simple_tag"), ("env_backend", "mpe2")),
    (("--env_id", "simple_tag", "--env_backend", "mpe2", "--local_ratio", "0.5"), ("local_ratio", "simple_tag")),
    (("--env_id", "simple_tag", "--env_backend", "mpe2", "--network", "entity"), ("network", "mlp or gru")),
    (("--env_id", "pettingzoo:no.such:thing"), ("env_id", "no.such")),
    (("--env_id", "pettingzoo:toy_tasks:no_such"), ("env_id", "no_such")),
    (("--env_id", "pettingzoo:toy_envs:observes_image", "--network", "mlp"), ("env_id",)),
    (("--network", "entity", "--hidden_size", "18"), ("hidden_size", "multiple of 4")),
    (("--network", "gru", "--chunk_length", "7"), ("chunk_length", "does not divide")),
    (("--layer_norm",), ("layer_norm", "mlp or gru")),
    (("--curriculum_advance_at", "100"), ("curriculum_advance_at", "curriculum")),
    (("--resume", "no/such/run"), ("no/such/run", "--resume takes the directory of a run")),
    (("--lr", "-1", "--gamma", "2", "--nonsense", "1"), ("lr", "gamma", "--nonsense", "3 faults")),
])  # fmt: skip
def test_a_bad_command_line(flags: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    given = tiny_argv(runs, *flags) if "--resume" not in flags else list(flags)
    is_refusal(call(given, runs), *words)


def test_the_form_of_a_sweep_works(tmp_path: Path) -> None:
    argv = ["--config", str(ROOT / "configs/train/train_mpe.yaml"), "--lr=3e-4", "--gamma=0.95",
            "--mini_batch_size=512", "--num_workers=0", "--log_wandb=false", f"--run_dir={tmp_path}", *LEAST]  # fmt: skip
    result = call(argv, tmp_path)
    assert result.code == 0, result.err
    config = load_config(["--config", str(result.run_dir / "config.yaml")], {}).config
    assert (config.lr, config.gamma, config.mini_batch_size, config.log_wandb) == (3e-4, 0.95, 512, False)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    file = tmp_path / "unreadable.yaml"
    file.write_text("lr: 1e-3\n")
    file.chmod(0)
    runs = tmp_path / "runs"
    if os.geteuid() == 0:
        pytest.skip("root reads it all the same")
    is_refusal(call(["--config", str(file), "--run_dir", str(runs)], runs), "unreadable.yaml")


def test_a_run_dir_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("mine")
    result = train(file, *LEAST)
    assert result.code == 2 and "run_dir" in result.err and str(file) in result.err and "Traceback" not in result.err
    assert file.read_text() == "mine" and list(tmp_path.iterdir()) == [file]


def test_a_run_dir_that_cannot_be_written(tmp_path: Path) -> None:
    # /proc takes no directories, not even from root
    result = train(Path("/proc/navrl"), *LEAST)
    assert result.code == 2 and "run_dir" in result.err and "--run_dir" in result.err and "Traceback" not in result.err
    if os.geteuid() != 0:
        tmp_path.chmod(0o555)
        result = train(tmp_path / "runs", *LEAST)
        tmp_path.chmod(0o755)
        assert result.code == 2 and "Permission denied" in result.err


def test_if_exists_error_refuses_a_taken_name(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    result = train(tmp_path, *LEAST, "--if_exists", "error")
    assert result.code == 2 and str(run_dir) in result.err and run_dirs(tmp_path) == [run_dir]
    assert train(tmp_path, *LEAST).code == 0
    assert [path.name for path in run_dirs(tmp_path)] == [run_dir.name, f"{run_dir.name}-2"]


@pytest.mark.parametrize("name", ["a/b", "../../x", ".", "n" * 300, "con", "trailing ", "🙂", "%s", "a\nb"])
def test_a_strange_name_stays_within_the_run_root(name: str, tmp_path: Path) -> None:
    result = train(tmp_path / "runs", *LEAST, "--experiment_name", name, "--group", name)
    assert result.code == 0, result.err
    assert result.run_dir.name == result.run_dir.parent.name == safe_directory(name)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    display = json.loads((result.run_dir / "tracking" / "run.json").read_text())
    assert (display["name"], display["group"]) == (name, name)


def test_resuming_what_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = call(["--resume", str(tmp_path / "empty")], tmp_path / "runs")
    is_refusal(result, "--resume takes the directory of a run")
    assert list((tmp_path / "empty").iterdir()) == []
    result = call(["--resume", str(tmp_path / "none"), "--lr", "0.5", "--seed", "3"], tmp_path / "runs")
    is_refusal(result, "--resume takes the directory of a run", "(1 fault)")


@pytest.mark.parametrize("damaged", ["[]", '{"artifacts": 1}', '{"artifacts": [{"file": "a"}, 3]}'])
def test_a_damaged_summary_is_written_anew_on_resume(damaged: str, tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    (run_dir / "summary.json").write_text(damaged)
    result = resume(run_dir)
    assert result.code == 0 and "Traceback" not in result.err and summary(run_dir)["status"] == "finished"


def test_a_row_without_a_step_is_named_on_resume(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    with open(run_dir / "metrics.jsonl", "a") as file:
        file.write('{"step": "x"}\n')
    result = resume(run_dir)
    assert result.code == 2 and "has no whole-number step" in result.err and "Traceback" not in result.err


def test_resuming_a_live_run(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    lock = RunLock(run_dir / ".lock")
    try:
        result = resume(run_dir)
    finally:
        lock.release()
    assert result.code == 2 and "in use by another process" in result.err and "Traceback" not in result.err


@pytest.mark.parametrize(("other", "words"), [
    (("--num_agents", "2"), "another task: its agents is"),
    (("--local_ratio", "0.25"), "another task: its settings is"),
    (("--hidden_size", "8"), "another size or network: Error(s) in loading"),
    (("--network", "gru"), "another size or network: Error(s) in loading"),
    (("--num_envs", "4"), "another size or network:"),
])  # fmt: skip
def test_a_checkpoint_of_another_task_or_size(other: tuple[str, ...], words: str, tmp_path: Path) -> None:
    run_dir = train(tmp_path / "a", *LEAST).run_dir
    stranger = train(tmp_path / "b", *LEAST, *other).run_dir
    shutil.rmtree(run_dir / "checkpoints")
    shutil.copytree(stranger / "checkpoints", run_dir / "checkpoints")
    before = (run_dir / "summary.json").read_bytes()
    result = resume(run_dir)
    assert result.code == 2 and words in result.err and "Traceback" not in result.err, result.err
    assert (run_dir / "summary.json").read_bytes() == before


def test_a_run_without_any_usable_checkpoint(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    for entry in CheckpointStore(run_dir / "checkpoints").entries:
        (run_dir / "checkpoints" / entry.file).write_bytes(b"")
    result = resume(run_dir)
    assert result.code == 2 and "no checkpoint that can be used" in result.err and "Traceback" not in result.err


def test_a_tracker_id_that_another_run_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = train(tmp_path, *LEAST).run_dir
    info = json.loads((other / "tracking" / "run.json").read_text())
    info["settings"]["wandb_run_id"] = "abc123"
    (other / "tracking" / "run.json").write_text(json.dumps(info))
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    before = run_dirs(tmp_path)
    flags = [word for word in tiny_argv(tmp_path, *LEAST, "--wandb_mode", "offline") if word != "--no_log_wandb"]
    result = call([*flags, "--log_wandb"], tmp_path)
    assert result.code == 2 and "WANDB_RUN_ID" in result.err and "Traceback" not in result.err
    assert run_dirs(tmp_path) == before == [other]


def test_help_lists_every_key_without_torch() -> None:
    script = (
        "import sys, main\n"
        "try: main.main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'scipy', 'wandb', 'mpe2', 'pettingzoo'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    from navrl.config import KEYS

    assert all(f"--{key}" in done.stdout for key in KEYS)


def test_a_reader_that_leaves_ends_in_silence(tmp_path: Path) -> None:
    command = f"{sys.executable} main.py --help | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
