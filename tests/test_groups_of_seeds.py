"""Which runs of a group count, what groups are called, and what a reader is warned of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from navrl.analysis import caveats
from navrl.analysis.comparison import compare
from navrl.analysis.groups import group_runs, science
from navrl.analysis.records import Run
from navrl.analysis.statistics import Estimate
from navrl.config import Config
from synthetic_runs import make_run

POINTS = {0: 1.0, 100: 2.0}


def started(day: int) -> dict[str, str]:
    return {"started": f"2026-01-{day:02d}T00:00:00.000+00:00"}


def seeds_of(count: int, group: str = "g", **more) -> list[Run]:  # noqa: ANN003
    return [make_run(group, seed, POINTS, **more) for seed in range(1, count + 1)]


def warnings(*runs: Run, metric: str = "m") -> list[str]:
    return list(compare(runs, [metric]).warnings)


def test_of_a_seed_that_was_run_twice_the_newest_finished_run_counts() -> None:
    old = make_run("g", 1, POINTS, name="old", metadata=started(1))
    new = make_run("g", 1, POINTS, name="new", metadata=started(2))
    running = make_run("g", 1, POINTS, name="running", status="running", metadata=started(3))
    crashed = make_run("g", 2, POINTS, name="crashed", status="crashed", metadata=started(1))
    again = make_run("g", 2, POINTS, name="again", status="running", metadata=started(2))
    (group,), left_out = group_runs([running, again, new, old, crashed])
    assert [run.name for run in group.runs] == ["new", "again"]
    assert {(place.source, place.reason) for place in left_out} == {
        ("runs/g/old", "seed 1 was run again: new (finished) counts"),
        ("runs/g/running", "seed 1 was run again: new (finished) counts"),
        ("runs/g/crashed", "seed 2 was run again: again (running) counts"),
    }


def test_where_no_time_is_known_the_number_that_the_record_gave_tells() -> None:
    runs = [make_run("g", 1, POINTS, name=name) for name in ("seed1-10", "seed1", "seed1-9")]
    (group,), left_out = group_runs(runs)
    assert group.runs[0].name == "seed1-10" and len(left_out) == 2


def test_another_configuration_is_no_second_try_and_is_said() -> None:
    runs = [*seeds_of(5), make_run("g", 1, POINTS, name="other", lr=1e-3)]
    (group,), left_out = group_runs(runs)
    assert len(group.runs) == 6 and not left_out
    assert set(group.mixed) == {"lr", "critic_lr"} and sorted(group.mixed["lr"]) == [5e-4] * 5 + [1e-3]
    assert "lr" not in group.config and group.config["gamma"] == 0.9 and "seed" not in group.config
    said = warnings(*runs)
    assert "g: its runs differ in more than the seed: lr (1e-3, 5e-4), critic_lr (1e-3, 5e-4)" in said
    assert "g: seed 1 counts more than once, with different configurations" in said


def test_runs_without_a_seed_count_one_by_one_and_one_given_twice_counts_once() -> None:
    (group,), left_out = group_runs([make_run("g", None, POINTS, name=name) for name in ("b", "a", "b")])
    assert [run.name for run in group.runs] == ["a", "b"] and not left_out


def test_runs_stand_by_seed_and_groups_as_they_come() -> None:
    runs = [make_run(group, seed, POINTS) for seed in (10, 2, 1) for group in ("z", "a")]
    groups, _ = group_runs(runs)
    assert [group.label for group in groups] == ["z", "a"]
    assert [run.seed for run in groups[0].runs] == [1, 2, 10]


def test_groups_of_one_name_get_longer_labels() -> None:
    places = [("shared", "runs/first/shared"), ("shared", "runs/second/shared"), ("alone", "runs/first/alone")]
    groups, _ = group_runs([make_run(name, 1, POINTS, root=place.rpartition("/")[0]) for name, place in places])
    assert [group.label for group in groups] == ["first/shared", "second/shared", "alone"]
    tracked = [make_run(name, 1, POINTS, root=root) for name, root in (("g", "mlflow:one"), ("g", "mlflow:two"))]
    assert len({group.label for group in group_runs(tracked)[0]}) == 2


def test_null_and_the_value_that_it_stands_for_are_one_configuration() -> None:
    written = make_run("g", 1, POINTS)
    resolved = make_run("g", 2, POINTS)
    resolved.config.clear()
    resolved.config.update(Config(seed=2).science())
    assert written.config["critic_lr"] is None and resolved.config["critic_lr"] == 5e-4
    assert science(written) == science(resolved) and not group_runs([written, resolved])[0][0].mixed


def test_a_configuration_that_is_lost_or_refused_stops_nothing() -> None:
    lost, odd = make_run("g", 1, POINTS), make_run("g", 2, POINTS)
    lost.config.clear()
    odd.config["gamma"] = 7.0  # out of range
    runs = [lost, odd, *(make_run("g", seed, POINTS) for seed in (3, 4, 5))]
    said = warnings(*runs)
    assert "g: the configuration of seed 1 is lost; whether it is the group's is not known" in said
    assert any("gamma (7, 0.9)" in line for line in said), said


def test_five_whole_seeds_need_no_words() -> None:
    assert warnings(*seeds_of(5), *seeds_of(5, "other", lr=1e-3)) == []


ONE = {"git_commit": "a" * 40, "return_scale": "A", "versions": {"torch": "2.0", "wandb": "1"},
       "env": {"package": "mpe2", "package_version": "1.1.1"}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"git_commit": "b" * 40}, "runs come from 2 commits: aaaaaaaaaa, bbbbbbbbbb"),
        (
            {"segments": [{"git_commit": "a" * 40}, {"git_commit": "c" * 40}]},
            "runs come from 2 commits: aaaaaaaaaa, cccccccccc",
        ),
        ({"versions": {"torch": "2.1", "wandb": "1"}}, "versions of torch differ: 2.0, 2.1"),
        ({"env": {"package": "mpe2", "package_version": "1.2"}}, "versions of mpe2 differ: 1.1.1, 1.2"),
        ({"return_scale": "B"}, "return scales differ, rewards are not comparable: A, B"),
        ({"git_dirty": True}, "1 of 10 runs had uncommitted changes (code.diff of each says which)"),
        ({"versions": {"torch": "2.0", "wandb": "2"}}, None),
        ({"segments": "damaged", "versions": None, "env": 3}, None),
    ],
)
def test_what_runs_were_made_of(change: Mapping, said: str | None) -> None:
    runs = [
        *seeds_of(5, metadata=ONE),
        *seeds_of(4, "h", metadata=ONE),
        make_run("h", 5, POINTS, metadata=ONE | change),
    ]
    assert warnings(*runs) == ([said] if said else [])


def test_few_seeds_budgets_tasks_and_unfinished_runs() -> None:
    said = warnings(*seeds_of(1), *seeds_of(5, "long", total_env_steps=1_600_000), *seeds_of(5, "four", num_agents=4))
    assert said == [
        "g: 1 seed; with fewer than 5 an interval says little",
        "budgets differ (environment steps): g 2400000, long 1600000, four 2400000; compare them at one step (--at)",
        "the tasks differ, rewards are not comparable: num_agents (3, 4)",
    ]
    unfinished = [*seeds_of(4), make_run("g", 5, {0: 1.0, 30: 2.0}, status="running")]
    assert warnings(*unfinished) == ["g: not finished: seed 5 (running at step 30)"]


def test_finals_of_two_kinds_missing_values_and_bad_rows() -> None:
    runs = [make_run("g", seed, POINTS, metric="eval/episode_reward", final=-7.0) for seed in (1, 2, 3)]
    runs.append(make_run("g", 4, {0: 1.0, 50: float("nan")}, metric="eval/episode_reward"))
    runs.append(make_run("g", 5, POINTS, metric="other"))
    assert warnings(*runs, metric="eval/episode_reward") == [
        "g: no eval/episode_reward of seed 5",
        "g: no final evaluation yet, values of the last row instead: seed 4",
        "g: eval/episode_reward has rows that are NaN or infinite, left out: seed 4 (1)",
    ]


def test_what_holds_for_every_metric_is_said_once() -> None:
    runs = [*seeds_of(4, metric="eval/a"), make_run("g", 5, POINTS, metric="train/c")]
    for run in runs[:3]:
        run.columns["eval/b"] = run.columns["eval/a"]
    assert list(compare(runs, ["eval/a", "eval/b", "train/c"]).warnings) == [
        "g: no eval/a of seed 5",
        "g: no eval/b of seed 4, seed 5",
        "g: no train/c of seed 1, seed 2, seed 3, seed 4",
        "g: no final evaluation yet, values of the last row instead: seed 1, seed 2, seed 3, seed 4",
    ]
    assert list(compare(runs[3:], ["eval/a", "eval/b"]).warnings)[1:] == [
        "g: no eval/a of seed 5",
        "g: no final evaluation yet, values of the last row instead: seed 4",
    ]


def test_final_evaluations_on_other_episodes() -> None:
    runs = seeds_of(5)
    for run, episodes in zip(runs, (500, 500, 500, 500, 100)):
        run.summary["final"] = {"env": "mpe2 1.1.1", "episodes": episodes, "mean": {}}
    assert warnings(*runs) == ["final evaluations differ: 500 episodes of mpe2 1.1.1, 100 episodes of mpe2 1.1.1"]


def test_reward_that_is_bought_with_collisions() -> None:
    more, less, unclear = Estimate(1.0, 0.5, 1.5), Estimate(-1.0, -1.5, -0.5), Estimate(0.1, -0.2, 0.4)
    assert caveats.of_behaviour("a", "b", more, more) == ["a has more reward than b, and more collisions"]
    assert caveats.of_behaviour("a", "b", less, less) == ["b has more reward than a, and more collisions"]
    for reward, collisions in ((more, less), (less, more), (unclear, more), (more, unclear)):
        assert caveats.of_behaviour("a", "b", reward, collisions) == []
    runs = []
    for label, reward, collisions in (("careful", -8.0, 0.5), ("reckless", -7.0, 3.0)):
        for seed in range(1, 6):
            run = make_run(label, seed, POINTS, metric="eval/episode_reward")
            run.summary["final"] = {
                "mean": {"episode_reward": reward + seed / 100, "collision_count": collisions + seed / 100}
            }
            runs.append(run)
    said = compare(runs, ["eval/episode_reward", "eval/collision_count"]).warnings
    assert "reckless has more reward than careful, and more collisions" in said


def test_long_lists_are_cut() -> None:
    assert (
        caveats.listed(map(str, range(4))) == "0, 1, 2, 3"
        and caveats.listed(map(str, range(6))) == "0, 1, 2, 3 and 2 more"
    )


def test_steps_and_seconds_of_a_group() -> None:
    (group,), _ = group_runs([make_run("g", 1, {0: 1.0, 500: 2.0}), make_run("g", 2, {0: 1.0})])
    assert group.steps.tolist() == [500, 0] and group.seconds.tolist() == [5.0, 0.0]
    group.runs[0].columns["time"][:] = np.nan
    assert np.isnan(group.seconds[0])
