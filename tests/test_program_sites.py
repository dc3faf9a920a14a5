"""Programs with weights of several origins, at several sites of the call, pairwise."""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from tests import call_sites
from tests.program_modes import ATOL, RTOL, is_float
from tests.programs import ALL
from tests.test_programs import LOOPED, REFUSED, runs

# Programs that are not vectorized somewhere, in one of their modes.
MAY_LOOP = frozenset(name for name, _ in LOOPED)

# (program, origin, site) that fail: a part of the error.
SITES_FAIL: dict[tuple[str, str, str], str] = {}


@functools.cache
def has_text(name):
    return any(x.dtype == tf.string for x in ALL[name].rows(1).values())


def fits(name, origin, site):
    if site == "compiled":
        return runs(name, "compiled") and (name, "compiled") not in REFUSED
    if site in ("fit", "functional"):
        return not has_text(name)
    return True


def body_of(program):
    """A body for ``call_sites``, and what it shares: its weights, or one number."""
    weights = program.shared()
    made = {name: make() for name, make in program.made.items()}

    def one(row, shared):
        given = dict(zip(weights, shared))
        results = program.one(**dict(zip(program.inputs, row)), **given, **made)
        return results if weights else (results, shared[0] * 2.0)

    return one, list(weights.values()) or [np.float32([1.0, 2.0])]


CELLS = [
    pytest.param(*cell, id="-".join(cell))
    for cell in dict.fromkeys([*call_sites.cover(sorted(ALL), fits), *SITES_FAIL])
]


def run(name, origin, site, fallback):
    program, n = ALL[name], 3
    rows = list(program.rows(n).values())
    body, shared = body_of(program)
    origin, site = call_sites.possible(body, rows, shared, origin, site)
    choice = call_sites.turn(name, origin, site)
    found = call_sites.run(
        body, rows, shared, origin, site, api=call_sites.APIS[choice % 3], fallback=fallback
    )  # fmt: skip
    given = shared if origin == "numpy" else [tf.constant(x) for x in shared]
    one = tf.function(lambda row: body(row, given))
    looped = [[x.numpy() for x in call_sites.leaves(one([x[r] for x in rows]))] for r in range(n)]
    for k, (f, w) in enumerate(zip(found, call_sites.wanted(looped, site), strict=True)):
        assert (f.dtype, f.shape) == (w.dtype, w.shape), f"result {k}"
        if site == "fit":
            np.testing.assert_allclose(f, w, 1e-3, 1e-3)
        elif is_float(tf.constant(w)):
            np.testing.assert_allclose(f, w, RTOL, ATOL, err_msg=f"result {k}")
        else:
            np.testing.assert_array_equal(f, w, err_msg=f"result {k}")


def test_gaps_are_sorted_and_fit():
    assert list(SITES_FAIL) == sorted(SITES_FAIL)
    assert all(fits(*cell) for cell in SITES_FAIL)


@pytest.mark.parametrize(("name", "origin", "site"), CELLS)
def test_program_sites(name, origin, site):
    cell = (name, origin, site)
    if cell in SITES_FAIL:
        with pytest.raises(Exception, match=re.escape(SITES_FAIL[cell])):
            run(*cell, "error")
        return
    run(*cell, "loop" if name in MAY_LOOP else "error")
