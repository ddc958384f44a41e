"""`log_filter`: what it matches is on no console and in no tracker, live or published later; the record stays whole."""

from __future__ import annotations

import json
import subprocess

import mlflow_tools
import pytest
import tracking_run
from test_main_refuses_bad_input import LEAST
from whole_runs import train

from navrl.config import Config, config_hash, dump
from navrl.config_sources import load
from navrl.faults import ConfigError
from navrl.redaction import filter_texts, hide_matches, holds_password, redact
from navrl.tracking.publish import read_run_info
from navrl.tracking.record import read_events

TRACKERS = ("wandb", "swanlab", "mlflow")


@pytest.fixture(autouse=True)
def _no_filter_afterwards():
    yield
    filter_texts(())


# ---- one text


@pytest.mark.parametrize(
    ("patterns", "text", "shown"),
    [
        (["acme"], "run at acme, acme_7", "run at ***, ***_7"),
        ([r"host-\d+", "(?i)ACME"], "host-12 of Acme: host-x", "*** of ***: host-x"),
        (["x*"], "axxb", "a***b"),  # also matches nothing, everywhere
        (["[^a-z]"], "a-b", "a***b"),
        (["(?m)^secret.*$"], "a\nsecret plan\nb", "a\n***\nb"),
        (["工厂"], "在工厂里", "在***里"),
        ([r"user \S+ from \S+"], "user me:pw@h:1 from there", "***"),
        ([], "acme", "acme"),
    ],
)
def test_matches_are_hidden_once_and_for_all(patterns, text, shown):
    filter_texts(patterns)
    assert redact(text, {}) == shown
    assert redact(shown, {}) == shown


def test_a_secret_is_hidden_also_where_the_filter_hides_its_name():
    filter_texts(["API"])
    assert "S3cret" not in redact("WANDB_API_KEY=S3cret-Value", {})


def test_an_expression_does_not_say_itself_what_it_hides():
    pattern = r"Ro(b|ss)in'\d"
    filter_texts([pattern])
    command = "python main.py --log_filter '" + pattern.replace("'", "'\"'\"'") + "'"
    for text in (pattern, command, json.dumps({"command": command}), dump(Config(log_filter=[pattern]))):
        assert "Ro(b|" not in redact(text, {}), text


def test_a_filter_changes_no_address():
    filter_texts(["tracking-host"])
    assert not holds_password("http://tracking-host:5000")


# ---- the key


def test_what_is_no_expression_is_refused_with_key_value_and_reason():
    with pytest.raises(ConfigError) as refusal:
        load(["--log_filter", "a(b", "fine"], {})
    (fault,) = refusal.value.faults
    assert fault.key == "log_filter" and "'a(b'" in fault.message and "missing )" in fault.message
    with pytest.raises(ConfigError, match="log_filter"):
        load(["--log_filter", ""], {})


def test_a_word_on_the_command_line_is_one_expression():
    assert load(["--log_filter", r"[0-9]{1,3}", "a b"], {}).config.log_filter == (r"[0-9]{1,3}", "a b")
    assert load(['--log_filter=["a,b", "c"]'], {}).config.log_filter == ("a,b", "c")
    assert load(["--log_filter", "[]"], {}).config.log_filter == ()


def test_it_is_no_part_of_the_experiment():
    assert config_hash(Config(log_filter=["a"])) == config_hash(Config())
    assert "log_filter" not in Config().science()


# ---- a run

# In the run that tracking_run.py makes: of its alert, caption, tag, name, metadata, and of its code and diff.
FILTER = ["near z.ro", r"episode\s0", "sm[o]ke", r"mappo seed\d", r"python main\b", "plant-[0-9]+", "Quar{2}y"]
HIDDEN = [b"near zero", b"episode 0", b"smoke", b"mappo seed1", b"python main", b"plant-77", b"Quarry"]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """One run, live to three trackers; and published to a fourth one later."""
    base = tmp_path_factory.mktemp("filter")
    code = base / "code"
    code.mkdir()
    (code / "task.py").write_text("SITE = 'plant-77'\n")
    (code / "Quarry.py").write_text("x = 1\n")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=code, check=True)
    (code / "task.py").write_text("SITE = 'plant-77'\nNEXT = 'plant-78, plant-77'\n")
    uri = mlflow_tools.empty_store(base / "store" / "mlflow.db")
    env = tracking_run.environment(base / "home")
    settings = {"log_filter": FILTER, "mlflow_tracking_uri": uri}
    result = tracking_run.run(
        env, root=base / "runs", rows=20, logger=["console", *TRACKERS], settings=settings, source_root=code
    )
    return base, env, result


def sent(base, run_dir, tracker):
    """All bytes that a tracker keeps, its own local logs aside."""
    roots = [run_dir / "tracking" / tracker, run_dir / "code"]
    roots += [base / "store"] if tracker == "mlflow" else []
    files = [path for root in roots for path in root.rglob("*") if path.is_file() and "logs" not in path.parts]
    own = ("ledger.json", "log.txt", ".lock")
    return {p: p.read_bytes() for p in files if p.name not in own and not p.name.startswith("sent-")}


@pytest.mark.parametrize("tracker", TRACKERS)
def test_no_tracker_has_what_is_filtered_and_all_have_the_rest(filtered, tracker):
    base, _, result = filtered
    assert f"{tracker}: all 20 rows" in "\n".join(result["lines"])
    content = sent(base, result["run_dir"], tracker)
    for path, data in content.items():
        assert not [word for word in HIDDEN if word in data], path
    everything = b"".join(content.values())
    for word in (b"entropy is ***", b"entropy collapse", b"SITE = '***'"):  # so the texts did get there
        assert word in everything, word


def test_code_and_diff_are_filtered_and_a_file_whose_name_matches_is_left_out(filtered):
    run_dir = filtered[2]["run_dir"]
    assert sorted(path.name for path in (run_dir / "code").iterdir()) == ["task.py"]
    assert (run_dir / "code" / "task.py").read_text() == "SITE = '***'\nNEXT = '***, ***'\n"
    diff = (run_dir / "code.diff").read_text()
    assert "+NEXT = '***, ***'" in diff and "plant" not in diff


def test_the_console_and_its_log_are_filtered(filtered):
    result = filtered[2]
    for text in (result["out"], result["err"], (result["run_dir"] / "console.log").read_text()):
        assert "near zero" not in text
    assert "warn: entropy collapse: entropy is ***" in (result["run_dir"] / "console.log").read_text()


def test_the_record_itself_keeps_names_and_filter(filtered):
    run_dir = filtered[2]["run_dir"]
    info = read_run_info(run_dir)
    assert (info.name, info.tags, info.settings["log_filter"]) == ("mappo seed1", ["smoke"], FILTER)
    assert info.settings["mlflow_tracking_uri"].startswith("sqlite:///")
    assert any(event.get("text") == "entropy is near zero" for event in read_events(run_dir))


def test_what_is_published_later_is_filtered_too(filtered):
    base, env, result = filtered
    done = tracking_run.sync(env, result["run_dir"], to="tensorboard")
    assert done.returncode == 0 and "tensorboard has 20 of 20 rows" in done.stdout, done.stdout + done.stderr
    everything = b"".join(sent(base, result["run_dir"], "tensorboard").values())
    assert not [word for word in HIDDEN if word in everything] and b"entropy is ***" in everything


def test_a_resume_with_a_new_filter_filters_the_code_that_is_kept(filtered, tmp_path):
    result = filtered[2]
    env = tracking_run.environment(tmp_path / "home")
    settings = {"log_filter": ["SITE"]}
    again = tracking_run.run(
        env, resume=str(result["run_dir"]), cut=1000, rows=2, logger=[], settings=settings,
        source_root=filtered[0] / "code",
    )  # fmt: skip
    assert (again["run_dir"] / "code" / "task.py").read_text().startswith("*** = ")


def test_a_whole_run_says_nothing_that_is_filtered_also_where_it_fails(tmp_path, no_code_copy):
    root = tmp_path / "Quarry-runs"
    result = train(root, *LEAST, "--total_env_steps", "100", "--env_id", "pettingzoo:toy_tasks:raises_in_third_iteration",
                   "--network", "mlp", "--log_filter", "Quarry", "bug in [a-z]+", "--num_envs", "1")  # fmt: skip
    assert result.code == 1
    said = result.out + result.err + (result.run_dir / "console.log").read_text()
    assert "Quarry" not in said and "a bug in" not in said and "KeyError" in said and "***" in said
    assert hide_matches("a bug in the task") == "a *** task"
