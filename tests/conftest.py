"""What every test shares: one torch thread, a fixed torch seed, and services that may be asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

WEAVE_PYTHON = Path(__file__).resolve().parents[1] / ".venv-weave" / "bin" / "python"  # see requirements-weave.txt

SERVICES: dict[str, Callable[[], bool]] = {
    "chromium": lambda: any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")),
    "sshd": lambda: os.access("/usr/sbin/sshd", os.X_OK),
    "weave": WEAVE_PYTHON.exists,
    "postgresql": lambda: shutil.which("pg_ctlcluster") is not None or shutil.which("pg_ctl") is not None,
}


def pytest_configure(config: pytest.Config) -> None:
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start
    torch.set_num_threads(1)
    if os.environ.get("CI"):  # there the same commit must give the same verdict; elsewhere every run looks further
        hypothesis.settings.register_profile("ci", derandomize=True)
        hypothesis.settings.load_profile("ci")
    config.addinivalue_line("markers", "requires_service(name): needs one of SERVICES on this machine")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip where a service is missing; with NAVRL_REQUIRE_SERVICES=1 (CI) that is a failure."""
    for mark in item.iter_markers("requires_service"):
        (name,) = mark.args
        if not SERVICES[name]():
            reason = f"{name} is not on this machine"
            if os.environ.get("NAVRL_REQUIRE_SERVICES") == "1":
                pytest.fail(f"{reason}, and NAVRL_REQUIRE_SERVICES is set", pytrace=False)
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def _torch_begins_alike() -> None:
    import torch

    torch.set_num_threads(1)  # a test that ran an experiment may have changed it
    torch.manual_seed(0)


@pytest.fixture
def no_code_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process leave out the copy of the code, a second of git each; other tests look at that copy."""
    import navrl.tracking.hub

    monkeypatch.setattr(navrl.tracking.hub.TrackerHub, "_keep_code", lambda hub, root: None)
