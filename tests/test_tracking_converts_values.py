"""Values become plain numbers once, for every tracker."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from navrl.tracking.convert import flat, from_json, json_ready, plain, scalars


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float32(0.5), 0.5),
        (np.float16(1.5), 1.5),
        (np.int64(7), 7),
        (np.bool_(True), 1),
        (True, 1),
        (np.array(2.5), 2.5),
        (torch.tensor(3.5), 3.5),
        (torch.tensor(2, dtype=torch.int32), 2),
        (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        (torch.tensor(0.25, requires_grad=True), 0.25),
        (torch.tensor(True), 1),
        (2**62, 2**62),
        (2**63, 2.0**63),
        (10**400, math.inf),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (np.longdouble(0.5), 0.5),
    ],
)
def test_numbers_of_every_kind_become_int_or_float(value, expected):
    got = plain(value)
    assert got == expected and type(got) in (int, float)


def test_non_finite_numbers_keep_their_kind():
    curves, refused = scalars({"a": np.nan, "b": torch.tensor(math.inf), "c": np.float16(-np.inf)})
    assert math.isnan(curves["a"]) and curves["b"] == math.inf and curves["c"] == -math.inf and not refused
    assert json_ready(curves) == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}
    assert math.isnan(from_json("NaN")) and from_json("-Infinity") == -math.inf and from_json("text") == "text"


def test_short_vectors_become_curves_and_the_rest_is_named():
    curves, refused = scalars(
        {
            "v": torch.arange(2),
            "l": (1, 2.5),
            "m": np.zeros((2, 2)),
            "big": np.zeros(17),
            "s": "x",
            "n": None,
            "o": object(),
            "c": 1j,
            "meta": torch.empty(1, device="meta"),
        }
    )
    assert curves == {"v_0": 0, "v_1": 1, "l_0": 1, "l_1": 2.5}
    assert set(refused) == {"m", "big", "s", "o", "c", "meta"}


def test_anything_is_strict_json():
    value = {
        "path": Path("/a"),
        "set": {2, 1},
        "nested": [np.float32(1), {"x": float("nan")}],
        "flag": False,
        3: object,
    }
    json.dumps(json_ready(value), allow_nan=False)
    assert json_ready(value)["flag"] is False and json_ready(value)["set"] == [1, 2]


def test_tracking_imports_neither_torch_nor_a_tracker():
    code = (
        "import sys; import navrl.tracking.hub, navrl.tracking.publish; "
        "print([m for m in ('torch', 'wandb', 'tensorboard', 'envs') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout.strip() == "[]"


def test_nested_values_get_dotted_names():
    assert flat({"mean": {"a": 1.5, "b": {"c": None}}, "step": 7, "d": [1], "e": {}}) == {
        "mean.a": 1.5, "mean.b.c": None, "step": 7, "d": [1]}  # fmt: skip
    assert flat(None) == flat([1]) == {}
