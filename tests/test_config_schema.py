"""The schema, the shipped files and the help text say the same thing; types are strict; science is separated."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from envs import registry
from navrl import config as config_module
from navrl import fields
from navrl.config import KEYS, KINDS, SCIENCE_KEYS, TASK_SETTINGS, Config, config_hash, dump, kind_of
from navrl.config_sources import load

ROOT = Path(__file__).parent.parent
MAIN_JOB = ROOT / "configs" / "train" / "train_mpe.yaml"
OFFICIAL = ROOT / "configs" / "train" / "mappo_official.yaml"

CONTRACT = """
    env_id env_backend num_agents max_cycles local_ratio continuous_actions terminate_on_success num_agent_neighbors
    num_landmark_neighbors curriculum curriculum_advance_at algorithm_name network share_policy hidden_size seed device
    torch_threads num_envs rollout_length total_env_steps lr lr_schedule lr_decay_steps adam_eps ppo_epoch
    mini_batch_size clip_param entropy_coef gamma gae_lambda max_grad_norm value_norm target_kl eval_interval
    eval_episodes log_interval checkpoint_interval log_eval_episodes logger log_wandb wandb_entity wandb_project
    wandb_group wandb_name wandb_mode wandb_proxy wandb_tags swanlab_mode mlflow_tracking_uri trace keep_artifacts
    tracker_timeout tracker_disk_budget_mb privacy project_name experiment_name group run_dir if_exists
""".split()


def test_every_key_of_the_contract_is_a_field() -> None:
    assert set(CONTRACT) <= set(KEYS)


def test_defaults_and_train_mpe_yaml_are_one_job() -> None:
    loaded = load(["--config", str(MAIN_JOB)], {}, registry.validate_settings)
    assert loaded.config == Config()
    assert loaded.notices == ()
    # named_keys is written by the program only; a person edits all others
    assert set(KEYS) - {key for key, source in loaded.sources.items() if source == "yaml"} == {"named_keys"}


def test_train_mpe_yaml_holds_the_lines_that_its_user_writes() -> None:
    lines = MAIN_JOB.read_text().splitlines()
    for line in (
        "lr: 5e-4            # must be read as a number: plain YAML 1.1 reads it as text",
        "log_wandb: True",
        "wandb_entity: null  # your_account_or_team_name",
        "wandb_project: NAVRL",
        "wandb_group: null   # e.g. mpe_simple_spread_3a_mappo",
        "wandb_name: null    # e.g. mappo_seed1_lr5e-4",
    ):
        assert line in lines


def test_the_official_recipe_is_what_the_paper_ran() -> None:
    loaded = load(["--config", str(OFFICIAL)], {}, registry.validate_settings)
    config = loaded.config
    assert loaded.notices == ()
    assert (config.num_envs, config.rollout_length, config.total_env_steps) == (128, 25, 20_000_000)
    assert (config.network, config.hidden_size, config.activation) == ("gru", 64, "tanh")
    assert (config.ppo_epoch, config.minibatch_size, config.lr, config.lr_schedule) == (10, 3200, 7e-4, "constant")
    assert (config.clip_param, config.entropy_coef, config.huber_delta, config.max_grad_norm) == (0.2, 0.01, 10, 10)
    assert (config.gamma, config.gae_lambda, config.adam_eps, config.value_norm) == (0.99, 0.95, 1e-5, "running")


@pytest.mark.parametrize("key", KEYS)
def test_every_key_says_what_it_is(key: str) -> None:
    info = Config.model_fields[key]
    assert info.description and info.description.endswith(".")
    assert kind_of(key) in KINDS
    assert fields.allowed(info)
    kind, _ = fields.inner(info)
    if config_module.section_of(key) == "Learner" and kind in (int, float):
        assert "Larger:" in info.description and "Smaller:" in info.description


def test_help_lists_every_key_with_type_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load(["--lr", "nonsense", "--help"], {})
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for key in KEYS:
        info = Config.model_fields[key]
        assert f"--{key} VALUE" in text
        assert " ".join((info.description or "").split()) in text
    assert f"[a number > 0 and <= 1; default: {Config().lr:g}]" in text


def test_reading_a_configuration_needs_no_torch_numpy_or_task() -> None:
    code = (
        "import sys, navrl.config_sources, navrl.naming\n"
        "navrl.naming.names(navrl.config_sources.load([], {}))\n"
        "try: navrl.config_sources.load(['--help'], {})\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'envs', 'mpe2', 'pettingzoo', 'wandb'} & set(sys.modules)\n"
        "print(heavy, file=sys.stderr); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_into_a_closed_pipe_is_no_fault() -> None:
    code = "import navrl.config_sources; navrl.config_sources.load(['--help'], {})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


WRONG: list[tuple[str, Any]] = [
    ("seed", True), ("seed", 1.0), ("seed", "1"), ("seed", -1), ("seed", 2**63), ("seed", None),
    ("lr", True), ("lr", "5e-4"), ("lr", float("nan")), ("lr", float("inf")), ("lr", 0), ("lr", None),
    ("log_wandb", 1), ("log_wandb", "true"), ("log_wandb", None),
    ("env_id", 3), ("env_id", ""), ("env_id", " "), ("env_id", "a\0b"), ("env_id", "\udcff"), ("env_id", None),
    ("network", "MLP"), ("network", None), ("value_norm", "on"), ("value_norm", 1),
    ("logger", "console"), ("logger", ["console", "console"]), ("logger", [None]), ("logger", {"console": 1}),
    ("curriculum_advance_at", [2, 1]), ("curriculum_advance_at", [1, 1]), ("curriculum_advance_at", [0]),
    ("curriculum_advance_at", []), ("curriculum_advance_at", [True]), ("curriculum_advance_at", 1.5),
    ("wandb_proxy", "host:3128"), ("wandb_group", ""), ("num_workers", -1), ("named_keys", ["seeds"]),
    ("no_such_key", 1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_nothing_is_coerced(key: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        Config(**{"curriculum": True, key: value})


def test_what_is_a_number_to_a_person_is_taken() -> None:
    assert Config(gamma=1).gamma == 1.0
    assert Config(value_norm=True).value_norm == "running"
    assert Config(value_norm=False).value_norm == "none"
    assert Config(curriculum=True, curriculum_advance_at=5).curriculum_advance_at == (5,)
    assert Config(curriculum=True, curriculum_advance_at=[5, 9]).curriculum_advance_at == (5, 9)


def test_a_config_is_frozen() -> None:
    config = Config()
    with pytest.raises(ValidationError):
        config.lr = 1.0  # type: ignore[misc]
    assert hash(config) == hash(Config())


def test_keys_that_need_each_other_are_checked() -> None:
    for values in (
        {"curriculum_advance_at": 100},
        {"network": "gru", "rollout_length": 25, "chunk_length": 10},
        {"trace": "mlflow"},
        {"trace": "wandb", "log_wandb": False},
        {"trace": "weave", "log_wandb": False},
        {"trace": "weave", "log_wandb": True, "privacy": "strict"},  # Weave is online only
        {"privacy": "strict", "wandb_mode": "online"},
        {"privacy": "strict", "swanlab_mode": "online", "logger": ["swanlab"]},
    ):
        with pytest.raises(ValidationError):
            Config(**values)
    Config(network="gru", rollout_length=25, chunk_length=5)
    Config(network="mlp", rollout_length=25, chunk_length=10)
    Config(trace="wandb", log_wandb=True)
    Config(trace="mlflow", logger=["mlflow"])
    Config(privacy="strict", wandb_mode="online", log_wandb=False)


def test_log_wandb_decides_on_wandb_and_follows_logger_where_unset() -> None:
    assert Config().trackers == ("console", "wandb")
    assert Config(logger=["console"]).trackers == ("console",)
    assert Config(logger=["tensorboard"], log_wandb=True).trackers == ("tensorboard", "wandb")
    assert Config(logger=["wandb", "console"]).trackers == ("wandb", "console")
    assert Config(logger=["console", "wandb"], log_wandb=False).trackers == ("console",)
    assert Config(log_wandb=False).trackers == ("console",)
    assert Config(logger=[]).trackers == ()


def test_a_task_is_handed_only_what_was_asked_for() -> None:
    assert Config().task_settings()["num_agents"] == 3
    assert set(Config().task_settings()) == set(TASK_SETTINGS) - {"num_agent_neighbors", "num_landmark_neighbors"}
    assert Config(env_id="simple_tag", env_backend="mpe2").task_settings() == {}
    assert Config(env_id="simple_tag", max_cycles=10).task_settings() == {"max_cycles": 10}
    other = Config(env_id="pettingzoo:pettingzoo.classic.rps_v2:parallel_env")
    assert (other.task_settings(), other.env_backend) == ({}, "pettingzoo")


def test_the_registry_takes_the_task_settings_of_the_defaults_and_of_other_tasks() -> None:
    load([], {}, registry.validate_settings)
    load(["--env_backend", "mpe2"], {}, registry.validate_settings)
    load(["--env_id", "simple_tag", "--env_backend", "mpe2"], {}, registry.validate_settings)


def test_unset_keys_resolve_to_the_keys_they_stand_for() -> None:
    config = Config(lr=1e-3, total_env_steps=1000, entropy_coef=0.1, mini_batch_size=None)
    assert (config.critic_learning_rate, config.decay_steps, config.final_entropy_coef) == (1e-3, 1000, 0.1)
    assert config.minibatch_size == config.batch_size == config.num_envs * config.rollout_length
    config = Config(critic_lr=1e-2, lr_decay_steps=7, entropy_coef_end=0.0, mini_batch_size=9)
    assert (config.critic_learning_rate, config.decay_steps, config.final_entropy_coef) == (1e-2, 7, 0.0)
    assert config.minibatch_size == 9


def test_science_is_flat_plain_and_free_of_everything_else() -> None:
    science = Config(curriculum=True, curriculum_advance_at=[1, 2]).science()
    assert tuple(science) == SCIENCE_KEYS
    assert json.loads(json.dumps(science)) == science
    assert science["curriculum_advance_at"] == [1, 2]
    for key in ("device", "run_dir", "logger", "wandb_entity", "eval_interval", "group", "privacy", "named_keys"):
        assert key not in science


def test_the_hash_is_of_what_can_change_a_result_without_the_seed() -> None:
    base = config_hash(Config())
    assert len(base) == 64
    assert config_hash(Config(seed=7, run_dir="elsewhere", wandb_name="x", log_interval=9, device="cuda")) == base
    assert config_hash(Config(critic_lr=Config().lr)) == base
    assert config_hash(Config(lr=Config().lr * 2)) != base
    assert config_hash(Config(env_backend="mpe2")) != base
    values = {key: value for key, value in Config().science().items() if key != "seed"}
    text = json.dumps(dict(reversed(values.items())), sort_keys=True, separators=(",", ":"))
    assert base == hashlib.sha256(text.encode()).hexdigest()  # what the docstring says, so that others can check it


def test_the_dump_is_deterministic_complete_and_read_alike_by_plain_yaml() -> None:
    config = Config(adam_eps=1e-8, lr=5e-5, wandb_tags=["yes", "1:30", "010", "a: b", "对比"], group="null")
    text = dump(config)
    assert text == dump(Config(**config.model_dump()))
    plain = yaml.safe_load(text)
    assert list(plain) == list(KEYS)
    assert plain == {key: list(v) if isinstance(v, tuple) else v for key, v in config.model_dump().items()}


def test_a_password_in_an_address_is_not_written_down(tmp_path: Path) -> None:
    config = Config(mlflow_tracking_uri="postgresql://me:hunter2@host/db", wandb_proxy="http://me:hunter2@proxy:3128")
    text = dump(config)
    assert "hunter2" not in text
    (tmp_path / "config.yaml").write_text(text)
    again = load(["--config", str(tmp_path / "config.yaml")], {}).config
    assert (again.mlflow_tracking_uri, again.wandb_proxy) == (None, None)


@pytest.mark.parametrize(("uri", "words"), [
    ("ftp://x", "is no database and no server"), ("file:///runs", "is no database"), ("mlruns", "is no database"),
    ("sqlite:///", "names no file"), ("sqlite://", "names no file"), ("sqlite:///:memory:", "names no file"),
    ("http://", "names no host"), ("http://host:port", "a port that is no number"), ("http://h:99999", "a port that"),
])  # fmt: skip
def test_an_address_where_no_store_can_be_is_refused(uri: str, words: str) -> None:
    with pytest.raises(ValidationError, match=f"mlflow_tracking_uri: .*{words}"):
        Config(logger=["mlflow"], mlflow_tracking_uri=uri)
    Config(logger=["console"], mlflow_tracking_uri=uri)  # nobody reads it


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "sqlite:////absolute/mlflow.db", "http://host:5000", "https://host/x",
                                 "postgresql+psycopg2://user:secret@host/db", "http://user:secret@host"])
def test_an_address_where_a_store_can_be_is_taken_and_strict_keeps_it_here(uri: str) -> None:
    Config(logger=["mlflow"], mlflow_tracking_uri=uri)
    if uri.startswith("sqlite"):
        Config(logger=["mlflow"], mlflow_tracking_uri=uri, privacy="strict")
    else:
        with pytest.raises(ValidationError, match="not on this machine") as caught:
            Config(logger=["mlflow"], mlflow_tracking_uri=uri, privacy="strict")
        assert "secret" not in str(caught.value)
