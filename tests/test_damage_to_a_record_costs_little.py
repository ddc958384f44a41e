"""A run whose small files were lost or damaged goes on, and one that cannot begin says so in its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from whole_runs import metadata, resume, summary, train

from runners import experiment

pytestmark = pytest.mark.usefixtures("no_code_copy")
LEAST = ("--num_envs", "2", "--rollout_length", "5", "--total_env_steps", "20", "--eval_episodes", "1",
         "--final_eval_episodes", "1", "--hidden_size", "4")  # fmt: skip


@pytest.mark.parametrize("left", [None, "", '{"segments": [', "[]", '{"segments": "abc"}', '{"segments": [1]}'])
def test_without_its_metadata_a_run_is_described_anew(left: str | None, tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    before = metadata(run_dir)
    (run_dir / "metadata.json").unlink()
    if left is not None:
        (run_dir / "metadata.json").write_text(left)
    result = resume(run_dir)
    assert result.code == 0, result.err
    after = metadata(run_dir)
    (segment,) = after["segments"]
    for name in ("config_hash", "versions", "machine", "torch"):
        assert segment[name] == after[name] == before[name], name
    assert segment["step"] == 20 and after["status"] == "finished"


@pytest.mark.parametrize("attempt", ['{"event": "attempt"}', '{"event": "attempt", "uid": 7, "suffix": null}'])
def test_a_journal_that_does_not_say_who_the_run_is(attempt: str, tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    (run_dir / "tracking" / "events.jsonl").write_text(attempt + "\n")
    result = resume(run_dir)
    assert result.code == 0 and "Traceback" not in result.err, result.err
    events = [json.loads(line) for line in (run_dir / "tracking" / "events.jsonl").read_text().splitlines()]
    assert isinstance(events[1]["uid"], str) and events[1]["attempt"] == 2


@pytest.mark.parametrize("text", ["[]", "{}", '{"uid": 3}', "{"])
def test_what_trackers_were_told_of_the_run_is_told_anew(text: str, tmp_path: Path) -> None:
    run_dir = train(tmp_path, *LEAST).run_dir
    before = (run_dir / "tracking" / "run.json").read_text()
    (run_dir / "tracking" / "run.json").write_text(text)
    assert resume(run_dir).code == 0
    after = json.loads((run_dir / "tracking" / "run.json").read_text())
    assert after["uid"] == json.loads(before)["uid"] and after["name"] == json.loads(before)["name"]


@pytest.mark.parametrize(("error", "shown"), [
    (ZeroDivisionError("a bug of ours"), True), (OSError(5, "Input/output error"), False),
])  # fmt: skip
def test_a_run_that_cannot_begin_has_failed(error: Exception, shown: bool, tmp_path: Path, monkeypatch) -> None:
    """Its directory is there by then: the record says why, the last line too, and it can be taken up again."""

    def broken(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "TrackerHub", broken)
        result = train(tmp_path, *LEAST)
    reason = f"{type(error).__name__}: {error}"
    assert result.code == 1 and result.err.splitlines()[-1] == reason
    assert ("Traceback" in result.err) == shown, "the details of what nobody expected"
    about = summary(result.run_dir)
    assert (about["status"], about["exit_code"], about["reason"]) == ("failed", 1, reason)
    assert metadata(result.run_dir)["status"] == "failed" and metadata(result.run_dir)["ended"]
    assert resume(result.run_dir).code == 0 and summary(result.run_dir)["status"] == "finished"
