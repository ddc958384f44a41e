"""Layer 4: every fact of the contract is there, in values that strict JSON takes."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
from datetime import datetime, timedelta, timezone

import numpy
import pytest

from navrl.metrics import metadata
from navrl.metrics.metadata import collect


def collected(**more):
    arguments = {
        "seed": 7,
        "config_hash": "0" * 64,
        "command": ["main.py", "--seed", "7", "--wandb_api_key=hunter2hunter2"],
        "task": {"env_id": "simple_spread", "package": "mpe2", "package_version": "1.1.1"},
        "trackers": ["console", "wandb", "no_such_tracker"],
        "torch_settings": {"threads": 1, "deterministic": True},
        "return_scale": "A",
        "absent": {"goal_conflict_rate": "more agents than goals"},
        **more,
    }
    return collect(**arguments)


def test_every_fact_of_the_contract_is_there():
    facts = collected()
    assert {
        "git_commit", "git_branch", "git_dirty", "command", "seed", "config_hash", "env", "versions", "machine",
        "started", "ended", "segments", "torch", "return_scale", "status", "absent",
    } <= set(facts)  # fmt: skip
    assert facts["seed"] == 7 and facts["config_hash"] == "0" * 64
    assert facts["ended"] is None and facts["status"] == "running"
    assert facts["env"]["package_version"] == "1.1.1" and facts["torch"]["threads"] == 1
    assert facts["return_scale"] == "A" and facts["absent"] == {"goal_conflict_rate": "more agents than goals"}
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_the_command_is_redacted_in_the_run_and_its_segment():
    facts = collected()
    assert facts["command"] == facts["segments"][0]["command"] == "main.py --seed 7 '--wandb_api_key=***'"
    assert "hunter2" not in json.dumps(facts)


def test_versions_are_those_installed_and_trackers_only_if_used():
    found = collected()["versions"]
    assert found["python"] == platform.python_version() and found["numpy"] == numpy.__version__
    assert {"torch", "scipy", "pettingzoo", "mpe2", "pydantic"} <= set(found)
    assert "no_such_tracker" not in found
    assert "wandb" not in collected(trackers=[])["versions"]


def test_the_machine_is_named():
    facts = metadata.machine()
    assert facts["os"].startswith(platform.system()) and facts["cpu"]
    assert facts["cores"] == os.cpu_count() >= facts.get("cores_usable", 1) >= 1
    assert facts["hostname"] == socket.gethostname() and facts["user"] == getpass.getuser()


def test_a_user_without_a_name_is_a_number(monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert metadata.machine()["user"] == str(os.getuid())


def tool(directory, monkeypatch, script):
    (directory / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_gpus_are_named_with_their_driver(tmp_path, monkeypatch):
    tool(tmp_path, monkeypatch, "echo 'NVIDIA H200, 570.1'; echo 'NVIDIA H200, 570.1'")
    assert metadata.machine()["gpus"] == [{"name": "NVIDIA H200", "driver": "570.1"}] * 2


@pytest.mark.parametrize("script", ["exec sleep 60", "echo 'has failed'; exit 9", "echo 'No devices were found'"])
def test_a_gpu_tool_that_does_not_answer_leaves_gpus_absent(tmp_path, monkeypatch, script):
    monkeypatch.setattr(metadata, "GPU_TIMEOUT", 0.2)
    tool(tmp_path, monkeypatch, script)
    assert "gpus" not in metadata.machine()


def test_without_a_gpu_tool_gpus_are_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert metadata.gpus() == []


def test_the_first_segment_says_who_began_it():
    facts = collected()
    (segment,) = facts["segments"]
    assert segment["step"] == 0 and segment["started"] == facts["started"] and segment["ended"] is None
    for name in ("command", "git_commit", "git_dirty"):
        assert segment[name] == facts[name]
    assert segment["hostname"] == facts["machine"]["hostname"]


def test_times_are_utc_to_the_millisecond():
    started = datetime.fromisoformat(collected()["started"])
    assert started.utcoffset() == timedelta(0)
    assert abs(datetime.now(timezone.utc) - started) < timedelta(minutes=1)


def test_outside_a_repository_the_reason_is_recorded(tmp_path):
    facts = collected(root=tmp_path)
    assert facts["git_commit"] is None and facts["git_note"] == "not a git repository"
