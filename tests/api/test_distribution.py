"""``vmap(strategy=...)``, in a process with two virtual CPUs: see ``distribution.py``."""

import subprocess
import sys

import pytest

from tests.api import distribution


@pytest.fixture(scope="module")
def ran():
    return subprocess.run(
        [sys.executable, "-m", "tests.api.distribution"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("name", [check.__name__ for check in distribution.CHECKS])
def test_rows_over_replicas(ran, name):
    assert name in ran.stdout.split(), ran.stderr[-2000:]
