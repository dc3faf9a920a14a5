"""Maps over several devices: two virtual CPUs in a process, and processes on the loopback.

The processes are ``distribution.py``, ``meshes.py``, ``workers.py`` and ``coordinator.py``:
TensorFlow's devices and clusters are made once in a process.
"""

import subprocess
import sys

import pytest

from tests.api import distribution, meshes, workers
from tests.api.coordinator import free_port


def process(module, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.api.{module}", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(*processes):
    """The texts that each process printed: on stdout and on stderr."""
    try:
        return [p.communicate(timeout=300) for p in processes]
    finally:
        for p in processes:
            p.kill()


@pytest.fixture(scope="module")
def ran():
    (found,) = finished(process("distribution"))
    return found


@pytest.fixture(scope="module")
def ran_on_a_mesh():
    (found,) = finished(process("meshes"))
    return found


@pytest.fixture(scope="module")
def ran_on_two():
    ports = f"{free_port()},{free_port()}"
    return finished(*[process("workers", ports, str(k)) for k in range(2)])


@pytest.mark.parametrize("name", [check.__name__ for check in distribution.CHECKS])
def test_rows_over_replicas(ran, name):
    out, errors = ran
    assert name in out.split(), errors[-2000:]


@pytest.mark.parametrize("name", [check.__name__ for check in meshes.CHECKS])
def test_rows_over_a_mesh(ran_on_a_mesh, name):
    out, errors = ran_on_a_mesh
    assert name in out.split(), errors[-2000:]


@pytest.mark.parametrize("name", [check.__name__ for check in workers.CHECKS])
def test_rows_over_machines(ran_on_two, name):
    for out, errors in ran_on_two:
        assert name in out.split(), errors[-2000:]


def test_a_killed_worker_of_a_coordinator_loses_no_row():
    ((out, errors),) = finished(process("coordinator"))
    assert "no row was lost" in out, errors[-2000:]
