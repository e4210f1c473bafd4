"""Triton's front end takes every form of every kernel, also those that only a GPU would reach."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def told():
    """Return what a process without Triton's interpreter says."""
    pytest.importorskip("triton")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.front_end"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_form_of_every_mode_is_accepted(told):
    count, *refusals = told
    assert int(count.split()[0]) > 400
    assert refusals == []
