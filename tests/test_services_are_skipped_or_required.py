"""A test whose service is missing is skipped and counted; where services are required (CI) it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest
@pytest.mark.requires_service("postgresql")
def test_that_needs_it(): pass
@pytest.mark.requires_service("chromium")
def test_that_has_it(): pass
def test_that_needs_nothing(): pass
"""


def outcome(pytester: pytest.Pytester) -> dict[str, int]:
    conftest = Path(__file__).with_name("conftest.py").read_text()
    pytester.makeconftest(conftest + "\nSERVICES.update(chromium=lambda: True, postgresql=lambda: False)\n")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs")
    result.stdout.fnmatch_lines(["*postgresql is not on this machine*"])
    return result.parseoutcomes()


def test_missing_services(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAVRL_REQUIRE_SERVICES", raising=False)
    assert outcome(pytester) == {"passed": 2, "skipped": 1}
    monkeypatch.setenv("NAVRL_REQUIRE_SERVICES", "1")
    found = outcome(pytester)
    assert found["passed"] == 2 and found.get("failed", 0) + found.get("errors", 0) == 1 and "skipped" not in found
