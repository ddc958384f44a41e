"""The publisher: every item once, the last attempt's values, retries, and what a backend cannot take."""

from __future__ import annotations

import json

import pytest

from navrl.tracking import publish
from navrl.tracking.hub import TrackerHub
from navrl.tracking.ledger import Ledger, read_ledger
from navrl.tracking.publish import EXIT_OK, EXIT_OWED, EXIT_UNAVAILABLE, Publisher, wanted
from navrl.tracking.record import LocalRecord, read_events
from navrl.tracking.tracker import RunInfo, Tracker, TrackerUnavailable, Unpublishable, safe_name


class Paper(Tracker):
    """A backend that keeps what it gets, and fails as told."""

    destination = "paper"
    got: list = []
    fail_rows: dict = {}
    held: int | None = None

    def start(self, run):
        return Paper.held

    def log_row(self, step, wall, metrics):
        if Paper.fail_rows.get(step, 0):
            Paper.fail_rows[step] -= 1
            raise ConnectionError("try again")
        Paper.got.append(("row", step, metrics.get("x")))

    def log_artifact(self, path, aliases, metadata):
        Paper.got.append(("artifact", path.name, tuple(aliases)))

    def finish(self, status, exit_code, summary):
        Paper.got.append(("finish", status, exit_code))


@pytest.fixture
def paper(monkeypatch):
    monkeypatch.setitem(publish.TRACKERS, "paper", f"{__name__}:Paper")
    monkeypatch.setattr(publish, "tracker_class", lambda name: Paper)
    monkeypatch.setattr(publish, "PAUSES", (0.01, 0.01))
    Paper.got, Paper.fail_rows, Paper.held = [], {}, None
    return Paper


@pytest.fixture
def finished(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    hub = TrackerHub(record, {"logger": [], "experiment_name": "run"}, science={}, terminal=False)
    for step in range(1, 6):
        hub.log(step, {"x": 10 * step})
    (record.checkpoints_dir / "a.pt").write_bytes(b"one")
    hub.log_artifact(record.checkpoints_dir / "a.pt", step=5, episodes=5, aliases=["latest"])
    hub.finish("finished")
    return record.run_dir


def steps(paper):
    return [item[1] for item in paper.got if item[0] == "row"]


def test_twice_is_once(paper, finished):
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == [1, 2, 3, 4, 5] and ("artifact", "a.pt", ("latest",)) in paper.got
    assert paper.got[-1] == ("finish", "finished", 0)
    paper.got.clear()
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert paper.got == [("finish", "finished", 0)]


def test_after_a_resume_only_new_steps_follow_and_unsent_ones_have_the_last_value(paper, finished):
    record = LocalRecord.open(finished)
    record.truncate_after(3)
    record.start_clock(1000.0)  # without it the new rows' times are those of the first attempt's clock
    for step in range(4, 8):
        record.log(step, {"x": -step})
    record.close()
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert [item[1:] for item in paper.got if item[0] == "row"] == [
        (1, 10),
        (2, 20),
        (3, 30),
        (4, -4),
        (5, -5),
        (6, -6),
        (7, -7),
    ]
    assert not [item for item in paper.got if item[0] == "artifact"]  # it came after the checkpoint and was never sent
    record = LocalRecord.open(finished)
    record.truncate_after(6)
    record.start_clock(2000.0)
    for step in range(7, 10):
        record.log(step, {"x": 0})
    record.close()
    paper.got.clear()
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == [8, 9]  # 7 was published before the cut


def test_what_a_backend_lost_is_sent_again_and_what_another_copy_sent_is_not(paper, finished):
    Publisher(finished, "paper").run()
    paper.got.clear()
    paper.held = 3
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == [4, 5]
    paper.got.clear()
    (finished / "tracking" / "paper" / "sent-paper.log").unlink()
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == [4, 5]


def test_destinations_that_differ_in_odd_characters_share_no_list(paper, finished, monkeypatch):
    for destination in ("lab/one", "lab:one"):
        monkeypatch.setattr(Paper, "destination", destination)
        paper.got.clear()
        assert Publisher(finished, "paper").run() == EXIT_OK
        assert steps(paper) == [1, 2, 3, 4, 5]
    monkeypatch.setattr(Paper, "destination", "lab/one")
    paper.got.clear()
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == []


def test_a_list_that_an_earlier_version_named_is_taken_over(paper, finished, monkeypatch):
    monkeypatch.setattr(Paper, "destination", "lab/one")
    assert Publisher(finished, "paper").run() == EXIT_OK
    (log,) = (finished / "tracking" / "paper").glob("sent-*.log")
    log.rename(log.with_name("sent-lab_one.log"))
    paper.got.clear()
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == []


def test_a_sync_that_fails_names_no_address_of_an_earlier_one(paper, finished, monkeypatch):
    monkeypatch.setattr(Paper, "url", "https://there/run", raising=False)
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert read_ledger(finished / "tracking" / "paper")["url"] == "https://there/run"

    def start(self, run):
        raise TrackerUnavailable("not here")

    monkeypatch.setattr(Paper, "start", start)
    assert Publisher(finished, "paper").run() == EXIT_UNAVAILABLE
    assert not read_ledger(finished / "tracking" / "paper")["url"]


def test_a_row_that_fails_is_tried_again_and_said_once(paper, finished, capsys):
    paper.fail_rows = {2: 2}
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == [1, 2, 3, 4, 5]
    assert capsys.readouterr().out.count("try again; training goes on") == 1


def test_a_backend_that_keeps_failing_is_set_aside_and_the_rest_is_owed(paper, finished):
    paper.fail_rows = {3: 99}
    assert Publisher(finished, "paper").run() == EXIT_OWED
    assert read_ledger(finished / "tracking" / "paper")["state"] == "set aside"
    paper.fail_rows = {}
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert sorted(set(steps(paper))) == [1, 2, 3, 4, 5]


def test_a_backend_that_cannot_serve_says_why(paper, finished, monkeypatch, capsys):
    def start(self, run):
        raise TrackerUnavailable("not installed; pip install it")

    monkeypatch.setattr(Paper, "start", start)
    assert Publisher(finished, "paper").run() == EXIT_UNAVAILABLE
    assert "paper: not installed; pip install it" in capsys.readouterr().out


def test_what_one_item_cannot_be_holds_up_no_other(paper, finished, monkeypatch, capsys):
    def log_artifact(self, path, aliases, metadata):
        raise TypeError("not like this")

    monkeypatch.setattr(Paper, "log_artifact", log_artifact)
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert steps(paper) == [1, 2, 3, 4, 5] and "is left out (TypeError: not like this)" in capsys.readouterr().out


class Counting(Paper):
    """A backend that knows how many lines it holds, and takes no table."""

    lines: list = []

    def start(self, run):
        return len(Counting.lines)

    def confirmed(self):
        return len(Counting.lines)

    def log_row(self, step, wall, metrics):
        if Paper.fail_rows.get(step):
            raise ConnectionError("gone")
        Counting.lines.append(step)


def test_a_left_out_table_does_not_shift_what_the_backend_counts(paper, finished, monkeypatch):
    monkeypatch.setattr(publish, "tracker_class", lambda name: Counting)
    Counting.lines = []
    with open(finished / "tracking" / "events.jsonl", "a") as file:
        file.write(json.dumps({"event": "table", "wall": 0, "step": 1, "name": "t", "columns": [], "rows": []}) + "\n")
    paper.fail_rows = {4: 1}
    assert Publisher(finished, "paper").run() == EXIT_OWED
    paper.fail_rows = {}
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert Counting.lines == [1, 2, 3, 4, 5]


def test_an_artifact_that_changed_since_is_not_published(paper, finished, capsys):
    (finished / "checkpoints" / "a.pt").write_bytes(b"another")
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert not [item for item in paper.got if item[0] == "artifact"]
    assert "digest differs" in capsys.readouterr().out


def test_a_path_outside_the_run_is_not_published(paper, finished):
    with open(finished / "tracking" / "events.jsonl", "a") as file:
        file.write(
            json.dumps(
                {
                    "event": "artifact",
                    "wall": 0,
                    "step": 1,
                    "path": "../../../../etc/passwd",
                    "aliases": [],
                    "metadata": {},
                }
            )
            + "\n"
        )
    assert Publisher(finished, "paper").run() == EXIT_OK
    assert [item[1] for item in paper.got if item[0] == "artifact"] == ["a.pt"]


@pytest.mark.parametrize("keep, sent", [("all", "lbf"), (None, "lbf"), ("best", "bf"), ("final", "f")])
def test_keep_artifacts(keep, sent):
    aliases = {"l": ["latest"], "b": ["latest", "best", "run-best"], "f": ["latest", "final"]}
    assert "".join(key for key, value in aliases.items() if wanted(keep, value)) == sent


def test_the_default_tracker_refuses_what_it_does_not_have():
    for call in (
        lambda t: t.log_media(0, 0, "n", None, None),
        lambda t: t.log_table(0, 0, "n", [], []),
        lambda t: t.log_trace(0, 0, "n", None),
        lambda t: t.log_artifact(None, [], {}),
        lambda t: t.alert("a", "b", "warn", 0),
    ):
        with pytest.raises(Unpublishable):
            call(Tracker())


def test_long_names_stay_different_and_keep_what_they_end_in(tmp_path):
    first, second = ("mappo_" + "x" * 200 + last for last in "ab")
    aliases = [safe_name(name, ending) for name in (first, second) for ending in ("-best", "-final")]
    assert len(set(aliases)) == 4 and all(len(alias) == 128 for alias in aliases)
    assert [alias.rsplit("-", 1)[1] for alias in aliases] == ["best", "final", "best", "final"]
    assert safe_name("a b/ä", "-best") == "a_b__-best" and safe_name(aliases[0]) == aliases[0]
    names = [RunInfo("u", "p", "n", "g", env_id=f"pettingzoo:{env}", algorithm_name="mappo").artifact_name
             for env in (first, second)]  # fmt: skip
    assert names[0] != names[1] and all(len(name) == 128 for name in names)
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    hub = TrackerHub(record, {"logger": [], "experiment_name": first}, science={}, terminal=False)
    (record.checkpoints_dir / "a.pt").write_bytes(b"one")
    hub.log_artifact(record.checkpoints_dir / "a.pt", step=5, episodes=5, aliases=["latest", "best", "final"])
    hub.finish("finished")
    (event,) = [event for event in read_events(record.run_dir) if event["event"] == "artifact"]
    assert event["aliases"] == ["latest", "best", "final", *aliases[:2]]


def test_a_backend_that_was_emptied_gets_checkpoints_and_alerts_anew(tmp_path: Path) -> None:
    keys = ["row 1", "artifact 1 a.pt latest", "row 2", "alert 2 entropy", "artifact 2 b.pt latest"]
    for held, kept in ((0, []), (1, keys[:2]), (2, keys)):
        ledger = Ledger(tmp_path / str(held))
        ledger.begin("somewhere")
        ledger.add(keys)
        ledger.keep_first(held)
        assert ledger.keys == kept and Ledger(tmp_path / str(held)).begin("somewhere") == kept
