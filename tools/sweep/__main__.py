"""``python -m tools.sweep [PART]``: how many endpoints are vectorized, loop, are refused or wrong.

Each case is mapped over three rows and compared with a Python loop over them. ``PART`` selects the
cases whose title contains it. A case that fails in the loop as well is TensorFlow's own error.
"""

from __future__ import annotations

import collections
import sys
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor.api.explain import describe
from tools.sweep import (
    of_arrays,
    of_image,
    of_linalg,
    of_math,
    of_nn,
    of_quantization,
    of_ragged,
    of_random,
    of_signal,
    of_sparse,
)  # fmt: skip
from tools.sweep.cases import Case, N, Rows

OUTCOMES = ("vectorized", "looped", "refused", "wrong", "an error in a plain loop as well")
MODULES = {
    "tf, tf.bitwise": of_arrays.BASE,
    "tf.image": of_image.IMAGE,
    "tf.linalg": of_linalg.LINALG,
    "tf.math": of_math.MATH,
    "tf.nn": of_nn.NN,
    "tf.quantization": of_quantization.QUANTIZATION,
    "tf.ragged": of_ragged.RAGGED,
    "tf.random": of_random.RANDOM,
    "tf.signal": of_signal.SIGNAL,
    "tf.sparse, tf.sets": of_sparse.SPARSE,
}


def outcome(case: Case) -> tuple[str, str]:
    """What becomes of a case, and why."""
    rows: list[Any] = []
    rows += [x.values for x in tf.nest.flatten((case.args, case.kwargs)) if isinstance(x, Rows)]
    if not rows:
        rows = [tf.range(N)]

    def one(given: list[tf.Tensor]) -> Any:
        supply = iter(given)

        def pick(x: Any) -> Any:
            return next(supply) if isinstance(x, Rows) else x

        args, kwargs = tf.nest.map_structure(pick, (case.args, case.kwargs))
        return case.fn(*args, **kwargs)

    try:
        expected = [_leaves(tf.function(one)([x[i] for x in rows])) for i in range(N)]
    except Exception as why:  # any error of any endpoint is a result here
        return OUTCOMES[4], str(why).splitlines()[0][:120]
    try:
        found = tf_pfor.vectorized_map(one, rows, warn=False)
        report = describe(one, rows)
    except Exception as why:
        return "refused", " ".join(str(why).split())[:200]
    problem = "" if case.random else _difference(found, expected)
    if problem:
        return "wrong", problem
    loops = [r for r in report.records if r.outcome.value in ("looped", "rejected")]
    if loops:
        return "looped", ", ".join(sorted({r.op_type for r in loops}))
    return "vectorized", ""


def _leaves(nest: Any) -> list[Any]:
    made: list[Any] = []
    for x in tf.nest.flatten(nest):
        if isinstance(x, tf.SparseTensor):
            made += [x.indices.numpy(), x.values.numpy(), x.dense_shape.numpy()]
        elif isinstance(x, tf.RaggedTensor):
            made.append(x.to_list())
        elif x is not None:
            made.append(_plain(tf.convert_to_tensor(x)))
    return made


def _plain(x: tf.Tensor) -> np.ndarray:
    narrow = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.qint32: tf.int32}.get(x.dtype)
    return (x if narrow is None else tf.bitcast(x, narrow)).numpy()


def _difference(found: Any, expected: list[list[Any]]) -> str:
    columns = [_rows(x) for x in tf.nest.flatten(found) if x is not None]
    flat = [[leaf for c in columns for leaf in c[i]] for i in range(N)]
    expected = _of_one_shape(found, expected)
    for i, (mine, right) in enumerate(zip(flat, expected, strict=True)):
        if len(mine) != len(right):
            return f"row {i}: {len(mine)} results, not {len(right)}"
        for f, e in zip(mine, right, strict=True):
            try:
                _same(f, e)
            except (AssertionError, ValueError, TypeError) as why:
                return f"row {i}: " + " ".join(str(why).split())[:150]
    return ""


def _of_one_shape(found: Any, expected: list[list[Any]]) -> list[list[Any]]:
    """Rows of a sparse result share a dense shape: the largest that a row has."""
    made, at = [list(row) for row in expected], 0
    for x in tf.nest.flatten(found):
        if isinstance(x, tf.SparseTensor):
            largest = np.max([row[at + 2] for row in made], 0)
            for row in made:
                row[at + 2] = largest
        at += 3 if isinstance(x, tf.SparseTensor) else int(x is not None)
    return made


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert np.asarray(tf.ragged.constant(found).flat_values).size or not sum(map(len, expected))
        np.testing.assert_equal([len(x) for x in found], [len(x) for x in expected])
        found, expected = ([e for row in x for e in row] for x in (found, expected))
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"shape {found.shape}, not {expected.shape}"
    if expected.dtype.kind in "fc":
        np.testing.assert_allclose(found, expected, 1e-4, 1e-4)
    else:
        np.testing.assert_array_equal(found, expected)


def _rows(x: Any) -> list[list[Any]]:
    """The results of each row, as the loop gives them."""
    made: list[list[Any]] = []
    for i in range(N):
        if isinstance(x, tf.SparseTensor):
            is_mine = x.indices[:, 0] == i
            at, values = tf.boolean_mask(x.indices, is_mine), tf.boolean_mask(x.values, is_mine)
            made.append([at[:, 1:].numpy(), values.numpy(), x.dense_shape[1:].numpy()])
            continue
        row = x[i]
        made.append([row.to_list() if isinstance(row, tf.RaggedTensor) else _plain(row)])
    return made


def main(part: str) -> None:
    """Prints a line for each case that is not vectorized, and a table."""
    warnings.simplefilter("ignore")
    totals: dict[str, collections.Counter[str]] = {}
    for module, cases in MODULES.items():
        counts: collections.Counter[str] = collections.Counter()
        for case in cases:
            if part not in case.title:
                continue
            what, why = outcome(case)
            counts[what] += 1
            if what != "vectorized" or part:
                print(f"{what}: {case.title}: {why}", flush=True)
        totals[module] = counts
    print(f"\n| module | {' | '.join(OUTCOMES)} |\n|---|{'---:|' * len(OUTCOMES)}")
    all_of_them: collections.Counter[str] = sum(totals.values(), collections.Counter())
    for module, counts in [*totals.items(), ("all", all_of_them)]:
        print(f"| {module} | {' | '.join(str(counts[o]) for o in OUTCOMES)} |")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
