"""Curves of a group stand at shared positions; a mean is only where every seed has a value; what is drawn is said."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from navrl.analysis import figures
from navrl.analysis.comparison import compare
from navrl.analysis.curves import POINTS, Curve, align, at_step, points, profile
from navrl.analysis.records import Run
from synthetic_runs import add_record, make_run

ROOT = Path(__file__).resolve().parents[1]
POINTS_OF_A_RUN = st.dictionaries(st.integers(0, 500), st.floats(-100, 100), min_size=1, max_size=12)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def aligned(*runs: Run, axis: str = "step", **options) -> Curve:  # noqa: ANN003
    curve = align(runs, "m", axis, **options)
    assert curve is not None
    return curve


def test_the_mean_is_over_the_steps_that_every_run_spans() -> None:
    curve = aligned(
        make_run("g", 1, {0: 1.0, 10: 2.0, 20: 3.0, 30: 9.0}), make_run("g", 2, {10: 3.0, 30: 1.0, 40: 0.0})
    )
    assert curve.positions.tolist() == [0, 10, 20, 30, 40]
    np.testing.assert_array_equal(curve.runs, [[1, 2, 3, 9, np.nan], [np.nan, 3, 2, 1, 0]])
    np.testing.assert_array_equal(curve.mean, [np.nan, 2.5, 2.5, 5.0, np.nan])
    apart = aligned(make_run("g", 1, {0: 1.0, 5: 1.0}), make_run("g", 2, {7: 1.0, 9: 2.0}))
    assert np.isnan(apart.mean).all() and np.isfinite(apart.runs).sum() == 4
    assert align([make_run("g", 1, {0: 1.0})], "no such metric", "step") is None


def test_a_run_without_the_metric_takes_no_mean_from_the_others() -> None:
    curve = aligned(make_run("g", 1, {0: 1.0, 10: 2.0}), make_run("g", 2, {0: 5.0}, metric="other"))
    assert curve.count == 1 and curve.mean.tolist() == [1.0, 2.0] and np.isnan(curve.runs[1]).all()
    assert np.isnan(curve.low).all(), "one run has no band"


@pytest.mark.parametrize("gap", [float("nan"), float("inf")])
def test_rows_without_a_finite_value_are_bridged(gap: float) -> None:
    curve = aligned(make_run("g", 1, {0: 1.0, 10: gap, 20: 3.0}), make_run("g", 2, {0: 1.0, 10: 1.0, 20: 1.0}))
    assert curve.mean.tolist() == [1.0, 1.5, 2.0]


def test_bands_by_hand() -> None:
    runs = [make_run("g", seed, {0: value}) for seed, value in enumerate((1.0, 2.0, 6.0))]
    spread = aligned(*runs, band="range")
    assert (spread.low[0], spread.high[0]) == (1.0, 6.0)
    deviation = aligned(*runs, band="std")
    assert (deviation.low[0], deviation.high[0]) == pytest.approx((3 - 7**0.5, 3 + 7**0.5))
    interval = aligned(*runs)
    assert interval.mean[0] == 3.0 and 1.0 <= interval.low[0] < 3.0 < interval.high[0] <= 6.0


def test_axes_and_rows_that_lack_their_place_on_them() -> None:
    run = make_run("g", 1, {100: 1.0, 200: 2.0, 300: 3.0})
    run.columns["train/episode_count"][:] = [4.0, np.nan, 12.0]
    assert points(run, "m", "time")[0].tolist() == [1.0, 2.0, 3.0]
    assert points(run, "m", "episodes")[0].tolist() == [4.0, 8.0, 12.0]
    run.columns["train/episode_count"][0] = np.nan
    assert points(run, "m", "episodes")[0].tolist() == [4.0, 8.0, 12.0], "no step, no episode"
    run.columns["time"][:] = np.nan
    assert align([run], "m", "time") is None
    run.columns["train/episode_count"][:] = [4.0, 4.0, 5.0]
    assert [part.tolist() for part in points(run, "m", "episodes")] == [[4.0, 5.0], [2.0, 3.0]]


def test_smoothing_is_a_mean_over_environment_steps() -> None:
    run = make_run("g", 1, {0: 0.0, 10: 10.0, 20: 20.0, 25: 40.0})
    curve = aligned(run, smooth=10.0)
    assert curve.runs[0].tolist() == [0.0, 10.0, 20.0, 30.0] and curve.raw[0].tolist() == [0.0, 10.0, 20.0, 40.0]
    assert aligned(run, smooth=1000.0).mean.tolist() == [0.0, 5.0, 10.0, 17.5]


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    curve = aligned(make_run("g", 1, {step: float(step) for step in range(5000)}))
    assert len(curve.positions) == POINTS and (curve.positions[0], curve.positions[-1]) == (0, 4999)
    np.testing.assert_array_equal(curve.mean, curve.positions)


def test_the_value_at_a_step_is_that_of_the_last_row_up_to_it() -> None:
    run = make_run("g", 1, {10: 1.0, 20: 2.0, 30: float("nan"), 40: 4.0})
    assert [at_step(run, "m", step) for step in (10, 19, 20, 35, 40)] == [1.0, 1.0, 2.0, 2.0, 4.0]
    assert np.isnan(at_step(run, "m", 9)) and np.isnan(at_step(run, "m", 41)), "not yet there"


def test_a_profile_is_the_share_that_is_better() -> None:
    finals = np.array([1.0, 2.0, 2.0, 3.0])
    up, down = (profile(finals, np.array([0.0, 1.0, 2.0, 3.0]), lower=lower) for lower in (False, True))
    assert up.share.tolist() == [1.0, 0.75, 0.25, 0.0] and down.share.tolist() == [0.0, 0.0, 0.25, 0.75]
    assert (up.low <= up.share).all() and (up.share <= up.high).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(POINTS_OF_A_RUN, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_what_holds_for_any_runs(found: list[dict[int, float]], random) -> None:  # noqa: ANN001
    runs = [make_run("g", seed, values) for seed, values in enumerate(found)]
    curve = aligned(*runs, band="range")
    assert (np.diff(curve.positions) > 0).all()
    for index, values in enumerate(found):  # every recorded point is on its curve
        at = np.searchsorted(curve.positions, sorted(values))
        np.testing.assert_allclose(curve.runs[index][at], [values[step] for step in sorted(values)], atol=1e-9)
        outside = (curve.positions < min(values)) | (curve.positions > max(values))
        assert (np.isnan(curve.runs[index]) == outside).all()
    everywhere = np.isfinite(curve.runs).all(0)
    assert (np.isfinite(curve.mean) == everywhere).all()
    if len(runs) > 1:
        assert (curve.low[everywhere] <= curve.mean[everywhere] + 1e-9).all()
        assert (curve.mean[everywhere] <= curve.high[everywhere] + 1e-9).all()
    order = list(range(len(runs)))
    random.shuffle(order)
    again = aligned(*(runs[index] for index in order), band="range")
    np.testing.assert_allclose(again.mean, curve.mean, atol=1e-9)
    np.testing.assert_array_equal(again.runs, curve.runs[order])


def test_the_script_draws_every_group(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("matplotlib")
    for project in ("first", "second"):
        add_record(tmp_path / project / "shared" / "run", [{"step": 0, "m": 1.0}, {"step": 10, "m": 2.0}], seed=None)
    out = tmp_path / "curves.svg"
    paths = [str(tmp_path / project / "shared") for project in ("first", "second")]
    assert script("plot").main([*paths, "--metrics", "m", "--out", str(out)]) == 0
    drawn = out.read_text()
    assert drawn.count("first/shared (1 seed)") == 1 and drawn.count("second/shared (1 seed)") == 1
    assert script("plot").main([str(tmp_path / "nothing"), "--out", str(out)]) == 2
    assert "neither a directory nor a group" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["curves", "curves.", ".png", "curves.png/../x"])
def test_a_name_that_names_no_kind_of_image_is_refused(name: str, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    add_record(tmp_path / "group" / "seed1", [{"step": 0, "m": 1.0}])
    (tmp_path / "curves.png").mkdir()
    with pytest.raises(SystemExit) as end:
        script("plot").main([str(tmp_path / "group"), "--metrics", "m", "--out", f"{tmp_path}/{name}"])
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1 and "name it .png, .svg or .pdf" in said
    assert {path.name for path in tmp_path.iterdir()} == {"group", "curves.png"}


def test_a_metric_that_no_run_has_is_refused(tmp_path: Path) -> None:
    add_record(tmp_path / "group" / "seed1", [{"step": 0, "m": 1.0}])
    out = tmp_path / "curves.png"
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "plot.py", tmp_path / "group", "--metrics", "nope", "--out", out],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "no run has a metric nope; nearest: " in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not out.exists()


def test_of_a_crowd_of_groups_the_means_alone_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = {}
    for count in (figures.CROWD, figures.CROWD + 1):
        runs = [make_run(f"g{group}", seed, {0: 1.0, 9: group + seed}) for group in range(count) for seed in (1, 2)]
        figures.draw_curves(compare(runs, ["m"]), "step", tmp_path / "c.svg")
        drawn[count] = (tmp_path / "c.svg").read_text()
    few, many = drawn.values()
    assert "band: 95 % bootstrap interval of the mean" in few and "means over seeds alone" in many
    assert few.count("fill-opacity: 0.2") == figures.CROWD and many.count("fill-opacity: 0.2") == 0
    assert many.count("g12 (2 seeds)") == 1
