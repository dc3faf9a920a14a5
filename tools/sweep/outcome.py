"""The outcome of a case: the loop, and tf_pfor with the fallback off and on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor.reports.explain import explain
from tools.sweep.cases import Case, N, Rows

STATES = ("vectorized", "looped", "refused", "wrong", "an error in a plain loop as well")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
      state: one of ``STATES``.
      why: the op types that looped, or the first line of the error.
      op_types: the op types that the endpoint makes.
    """

    state: str
    why: str
    op_types: frozenset[str] = frozenset()


def outcome(case: Case) -> Outcome:
    """Maps a case and compares it with a Python loop.

    The fallback is off first. It is on in a second run if the first is refused. It is also on if
    shapes differ per row: the walker may prefer a loop for such rows.
    """
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

    looped = tf.function(one)
    try:
        given = [[x[i] for x in rows] for i in range(N)]
        expected = [_leaves(looped(row)) for row in given]
        made = _op_types(looped.get_concrete_function(given[0]).graph.as_graph_def())
    except Exception as why:  # any error of any endpoint is a result here
        return Outcome(STATES[4], _line(why))
    try:
        loops = _loops(one, rows)
    except Exception as why:
        return Outcome("refused", _line(why), made)
    for fallback in ("error", "loop"):
        try:
            found = tf_pfor.vectorized_map(one, rows, warn=False, fallback=fallback)
        except tf_pfor.NotVectorizableError as why:
            if fallback == "loop":
                return Outcome("refused", _line(why), made)
            loops |= {f.split()[0] for f in why.failures}
            continue
        except Exception as why:
            return Outcome("refused", _line(why), made)
        problem = "" if case.random else _difference(found, expected)
        if problem:
            return Outcome("wrong", f"fallback {fallback}: {problem}", made)
        if not _has_own_shapes(found):
            break  # where all rows have one shape, what is vectorized is so with the fallback on
    return Outcome("looped" if loops else "vectorized", " ".join(sorted(loops)), made)


def _loops(one: Any, rows: list[Any]) -> set[str]:
    """The op types that run in a loop, also where that is no warning: kernels that take one row."""
    records = explain(one, rows).records
    return {r.op_type for r in records if r.outcome.value in ("looped", "rejected")}


def _has_own_shapes(found: Any) -> bool:
    composites = (tf.RaggedTensor, tf.SparseTensor)
    return any(isinstance(x, composites) for x in tf.nest.flatten(found))


def _line(why: Exception) -> str:
    return " ".join(str(why).split())[:200]


_PLAIN = {"Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PartitionedCall"}
_PLAIN |= {"StatefulPartitionedCall", "Return", "Arg", "_Arg", "_Retval"}


def _op_types(graph: Any) -> frozenset[str]:
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return frozenset(n.op for n in nodes) - _PLAIN


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
