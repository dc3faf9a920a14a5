"""How the tests run: quiet TensorFlow, fast files first, a share of the long sweeps.

``TF_PFOR_SHARE=k/n`` runs the k-th of n shares of the tests that are marked ``slow``, and all
others. Without it everything runs. Which tests are in a share depends on their names alone.
"""

import gc
import os
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "PYTEST_XDIST_WORKER" in os.environ:  # as many threads as cores, over all workers
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import pytest

FIRST = (
    "test_structure.py",
    "test_build.py",
    "test_smoke.py",
    "test_errors.py",
    "test_api.py",
    "test_docs.py",
)
LAST = ("test_samples.py",)


def _share() -> tuple[int, int] | None:
    given = os.environ.get("TF_PFOR_SHARE", "")
    if not given:
        return None
    try:
        k, n = (int(x) for x in given.split("/"))
    except ValueError:
        k, n = 0, 0
    if not 1 <= k <= n:
        raise pytest.UsageError(f"TF_PFOR_SHARE must be k/n with 1 <= k <= n, found {given!r}.")
    return k, n


def pytest_report_header():
    share = _share()
    return f"slow tests: {f'share {share[0]} of {share[1]}' if share else 'all'}"


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: _rank(item.path.name))  # stable: order within a file stays
    share = _share()
    if share is None:
        return
    k, n = share
    skipped = [
        item
        for item in items
        if item.get_closest_marker("slow") and zlib.crc32(item.nodeid.encode()) % n != k - 1
    ]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        gone = set(skipped)
        items[:] = [item for item in items if item not in gone]


def _rank(name: str) -> int:
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST) + (name in LAST)


@pytest.fixture(autouse=True, scope="module")
def _free_graphs():
    """Graphs are reference cycles: without this a long run keeps them for minutes."""
    yield
    gc.collect()


@pytest.fixture
def weights_are_large(monkeypatch):
    """Weights count as larger than a cache, and are taken apart in blocks of two columns."""
    from tf_pfor.converters import _joint_products, _weights

    monkeypatch.setattr(_joint_products, "LARGE", 1)
    monkeypatch.setattr(_weights, "_ROWS", range(513))
    monkeypatch.setattr(_weights, "_LEAST", 1)
    monkeypatch.setattr(_weights, "LARGE", 1)
    monkeypatch.setattr(_weights, "_BLOCK", 2)
