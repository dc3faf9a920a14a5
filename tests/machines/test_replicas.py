"""Maps over the replicas of a strategy: variables, gradients, shapes and options."""

import subprocess
import sys

import pytest

from tests.machines import replicas


@pytest.fixture(scope="module")
def ran():
    command = [sys.executable, "-m", "tests.machines.replicas"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", [check.__name__ for check in replicas.CHECKS])
def test_rows_over_replicas(ran, name):
    assert name in ran.stdout.splitlines(), (ran.stdout, ran.stderr[-2000:])
