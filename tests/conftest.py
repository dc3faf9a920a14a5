"""The settings of a test run: quiet TensorFlow, fast files first, a share of the long sweeps.

``TF_PFOR_BUDGET=seconds`` runs the tests that always run, and so many seconds of the long sweeps.
The content of the tree chooses the sweeps (see shares.py). Without it all tests run.
``TF_PFOR_ROOM=lists,state`` runs all tests of these rooms, and nothing else.
``TF_PFOR_RECORD=file`` writes the seconds of each test. ``TF_PFOR_LIMIT=seconds`` fails tests that
have not begun after so many seconds.
"""

import gc
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_PFOR_CONTRACTS", "1")
# TensorFlow's own default depends on the processor; without it dilated convolutions have no
# gradients on CPUs.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # as many threads as cores, over all workers
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import pytest

from tests import shares

FIRST = (
    "test_structure.py",
    "test_build.py",
    "test_smoke.py",
    "test_errors.py",
    "test_api.py",
    "test_docs.py",
)
LAST = ("test_samples.py",)
BEGAN = time.monotonic()


def _options() -> tuple[float, list[str]]:
    """Seconds of sweeps (0: all), and rooms."""
    try:
        budget = float(os.environ.get("TF_PFOR_BUDGET") or 0)
        shares.turn()
    except ValueError as why:
        raise pytest.UsageError(f"TF_PFOR_BUDGET and TF_PFOR_TURN must be numbers: {why}") from why
    rooms = [*filter(None, os.environ.get("TF_PFOR_ROOM", "").split(","))]
    if unknown := sorted({*rooms} - {*shares.ROOMS}):
        raise pytest.UsageError(
            f"TF_PFOR_ROOM has {unknown}, expected some of {', '.join(shares.ROOMS)}."
        )
    return budget, rooms


def pytest_report_header():
    budget, rooms = _options()
    sweeps = f"{budget:.0f} seconds at turn {shares.turn()} of this tree" if budget else "all"
    return f"rooms: {', '.join(rooms)}, whole" if rooms else f"long sweeps: {sweeps}"


def pytest_collection_modifyitems(config, items):
    items.sort(key=_rank)  # stable: order within a file stays
    tests = [shares.Test.of(i.nodeid, bool(i.get_closest_marker("slow"))) for i in items]
    for item, test in zip(items, tests):
        if test.unit != test.name:
            item.add_marker(pytest.mark.xdist_group(test.unit))
    kept = _kept(tests)
    skipped = [item for item, test in zip(items, tests) if test not in kept]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        items[:] = [item for item, test in zip(items, tests) if test in kept]


def _kept(tests: list[shares.Test]) -> set[shares.Test]:
    budget, rooms = _options()
    if rooms:
        return {t for t in tests if shares.in_rooms(t, rooms)}
    if not budget:
        return set(tests)
    return shares.pick(tests, shares.recorded(), budget, shares.turn())


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    began = time.process_time()
    yield
    path = os.environ.get("TF_PFOR_RECORD")
    if path:
        function = shares.Test.of(item.nodeid, is_slow=False).function
        with open(path, "a") as file:
            file.write(json.dumps([function, round(time.process_time() - began, 3)]) + "\n")


def pytest_runtest_setup(item):
    limit = float(os.environ.get("TF_PFOR_LIMIT") or 0)
    if limit and time.monotonic() - BEGAN > limit:
        pytest.fail("NOT RUN: the time is up. LIMIT= lifts the limit.", pytrace=False)


def _rank(item: pytest.Item) -> tuple[int, str]:
    """Fast files first, samples last, all checks of one sample in a row."""
    name = item.path.name
    case = item.nodeid.partition("[")[2] if name in LAST else ""
    return FIRST.index(name) if name in FIRST else len(FIRST) + (name in LAST), case


@pytest.fixture(autouse=True, scope="session")
def _whole_products():
    """No products of ten bits on GPUs: they could not be compared."""
    if (tf := sys.modules.get("tensorflow")) is not None:
        tf.config.experimental.enable_tensor_float_32_execution(False)


@pytest.fixture(autouse=True, scope="module")
def _free_graphs():
    """Graphs are reference cycles: without this a long run keeps them for minutes."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _no_caching_device():
    """``tf.map_fn`` leaves one behind when its function raises, and breaks tf.recompute_grad."""
    yield
    if (tf := sys.modules.get("tensorflow")) is not None:
        tf.compat.v1.get_variable_scope()._caching_device = None


@pytest.fixture
def weights_are_large(monkeypatch):
    """Weights count as larger than a cache, and are taken apart in blocks of two columns."""
    from tf_pfor.converters.math import _joint_products, _weights

    monkeypatch.setattr(_joint_products, "LARGE", 1)
    monkeypatch.setattr(_weights, "_ROWS", range(513))
    monkeypatch.setattr(_weights, "_LEAST", 1)
    monkeypatch.setattr(_weights, "LARGE", 1)
    monkeypatch.setattr(_weights, "_BLOCK", 2)
