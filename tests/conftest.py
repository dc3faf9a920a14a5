"""The settings of a test run: quiet TensorFlow, fast files first, chosen tests or a shard of all.

``--chosen`` runs what ``make test`` runs (chosen.py), ``--shard 3/20`` the third of twenty shards
of all tests. ``--seconds-to=FILE`` writes how long each test took.
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

from tests import chosen

FIRST = (
    "test_structure.py",
    "test_build.py",
    "test_smoke.py",
    "test_errors.py",
    "test_api.py",
    "test_docs.py",
)
LAST = ("test_samples.py",)


def pytest_addoption(parser):
    parser.addoption("--chosen", action="store_true", help="what `make test` runs")
    parser.addoption("--shard", type=_shard, metavar="K/N", help="a shard of all tests")
    parser.addoption("--seconds-to", metavar="FILE", help="where CPU seconds of tests are added")


def _shard(text: str) -> tuple[int, int]:
    k, _, count = text.partition("/")
    if not (k.isdecimal() and count.isdecimal() and 1 <= int(k) <= int(count)):
        raise pytest.UsageError(f"--shard must be K/N with K from 1 to N, found {text!r}.")
    return int(k), int(count)


def pytest_pycollect_makeitem(collector, name, obj):
    """A lambda of a module has the name of its variable, also in the ids of tests."""
    if getattr(obj, "__name__", "") == "<lambda>" and hasattr(obj, "__code__"):
        obj.__name__ = name


def pytest_collection_modifyitems(config, items):
    items.sort(key=_rank)  # stable: order within a file stays
    tests = [chosen.Test.of(i.nodeid) for i in items]
    for item, test in zip(items, tests):
        if chosen.unit(test) != test.name:
            item.add_marker(pytest.mark.xdist_group(chosen.unit(test)))
    kept = set(tests)
    if config.getoption("chosen"):
        kept = chosen.chosen(tests, chosen.recorded())
    if shard := config.getoption("shard"):
        kept &= chosen.in_shard(tests, *shard)
    skipped = [item for item, test in zip(items, tests) if test not in kept]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        items[:] = [item for item, test in zip(items, tests) if test in kept]


def pytest_collection_finish():
    """Modules and tests stay to the end: collections of garbage need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    began = time.process_time()
    yield
    if path := item.config.getoption("seconds_to"):
        function = chosen.Test.of(item.nodeid).function
        with open(path, "a") as file:
            file.write(json.dumps([function, round(time.process_time() - began, 3)]) + "\n")


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
    """Graphs are reference cycles: without this a long run keeps them for minutes.

    The rest stays to the end. The next collection need not look at it, which took a fifth of a run.
    """
    yield
    gc.collect()
    gc.freeze()


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
