"""The forms that a vectorized matrix product may take, timed against each other in one run.

    python benchmarks/kernels/matmul_forms.py [--repeat 30] [--json FILE]

Every line is one case and one set of sizes. The numbers are times relative to the fastest form
of that line (1.00). The page docs/decisions/0002-matmul-forms.md has the choices made from them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

raw = tf.raw_ops
Forms = dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]]


def _bmm(x: tf.Tensor, y: tf.Tensor, adj_x: bool = False, adj_y: bool = False) -> tf.Tensor:
    return raw.BatchMatMulV2(x=x, y=y, adj_x=adj_x, adj_y=adj_y)


def _einsum(equation: str) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    return lambda x, y: raw.Einsum(inputs=[x, y], equation=equation)


def _tiled(x: tf.Tensor, n: int) -> tf.Tensor:
    return tf.broadcast_to(x, [n, *x.shape])


def outer() -> tuple[str, Forms, list[Any]]:
    """u_i v_i^T: [n, r] and [n, m] to [n, r, m]."""
    forms: Forms = {
        "mul": lambda x, y: x[:, :, None] * y[:, None, :],
        "bmm": lambda x, y: _bmm(x[:, :, None], y[:, None, :]),
        "einsum": _einsum("nr,nm->nrm"),
    }
    sizes = [(1024, 4, 4), (1024, 32, 32), (256, 128, 64), (64, 512, 256), (16, 1024, 1024)]
    return "outer products [n,r,1][n,1,m]", forms, [(s, (s[0], s[1]), (s[0], s[2])) for s in sizes]


def left_invariant() -> tuple[str, Forms, list[Any]]:
    """A @ y_i: [m, k] and [n, k, p] to [n, m, p]."""

    def columns(a: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        n, k, p = y.shape
        side = tf.reshape(tf.transpose(y, [1, 0, 2]), [k, n * p])
        return tf.transpose(tf.reshape(a @ side, [-1, n, p]), [1, 0, 2])

    def rows(a: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        n, k, p = y.shape
        flat = tf.reshape(tf.transpose(y, [0, 2, 1]), [n * p, k])
        product = tf.matmul(flat, a, transpose_b=True)
        return tf.transpose(tf.reshape(product, [n, p, -1]), [0, 2, 1])

    forms: Forms = {
        "columns": columns,
        "rows": rows,
        "einsum": _einsum("mk,nkp->nmp"),
        "tile+bmm": lambda a, y: _bmm(_tiled(a, y.shape[0]), y),
        "broadcasting bmm": lambda a, y: _bmm(a[None], y),
    }
    sizes = [
        (1024, 4, 4, 4), (256, 32, 32, 8), (256, 32, 32, 64), (64, 128, 128, 16),
        (16, 128, 128, 256), (32, 512, 512, 8), (16, 8, 8, 4096),
    ]  # fmt: skip
    return "A @ y_i: [m,k][n,k,p]", forms, [(s, (s[1], s[2]), (s[0], s[2], s[3])) for s in sizes]


def left_invariant_transposed() -> tuple[str, Forms, list[Any]]:
    """A @ y_i^T: [m, k] and [n, p, k] to [n, m, p]."""

    def columns(a: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        n, p, k = y.shape
        product = tf.matmul(a, tf.reshape(y, [n * p, k]), transpose_b=True)
        return tf.transpose(tf.reshape(product, [-1, n, p]), [1, 0, 2])

    def rows(a: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        n, p, k = y.shape
        product = tf.matmul(tf.reshape(y, [n * p, k]), a, transpose_b=True)
        return tf.transpose(tf.reshape(product, [n, p, -1]), [0, 2, 1])

    forms: Forms = {
        "columns": columns,
        "rows": rows,
        "einsum": _einsum("mk,npk->nmp"),
        "tile+bmm": lambda a, y: _bmm(_tiled(a, y.shape[0]), y, adj_y=True),
    }
    sizes = [(1024, 4, 4, 4), (256, 32, 32, 8), (64, 128, 128, 16), (16, 128, 128, 256)]
    return "A @ y_i^T: [m,k][n,p,k]", forms, [(s, (s[1], s[2]), (s[0], s[3], s[2])) for s in sizes]


def left_vector() -> tuple[str, Forms, list[Any]]:
    """One row by matrices, a @ y_i: [1, k] and [n, k, p] to [n, 1, p]."""
    _, forms, _ = left_invariant()
    forms = {
        **{k: forms[k] for k in ("columns", "rows", "einsum", "tile+bmm")},
        "mul+sum": lambda a, y: tf.reduce_sum(y * tf.transpose(a), 1, keepdims=True),
    }
    sizes = [(1024, 4, 4), (256, 32, 32), (64, 128, 256), (16, 1024, 512)]
    return (
        "one row a @ y_i: [1,k][n,k,p]",
        forms,
        [(s, (1, s[1]), (s[0], s[1], s[2])) for s in sizes],
    )


def right_invariant_transposed() -> tuple[str, Forms, list[Any]]:
    """x_i^T @ B: [n, k, r] and [k, m] to [n, r, m]."""

    def rows(x: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        n, k, r = x.shape
        flat = tf.reshape(tf.transpose(x, [0, 2, 1]), [n * r, k])
        return tf.reshape(flat @ b, [n, r, -1])

    forms: Forms = {
        "transpose+matmul": rows,
        "einsum": _einsum("nkr,km->nrm"),
        "tile+bmm": lambda x, b: _bmm(x, _tiled(b, x.shape[0]), adj_x=True),
    }
    sizes = [(1024, 4, 4, 4), (256, 32, 8, 32), (64, 128, 16, 128), (16, 128, 256, 128)]
    return "x_i^T @ B: [n,k,r][k,m]", forms, [(s, (s[0], s[1], s[2]), (s[1], s[3])) for s in sizes]


def matrix_vector() -> tuple[str, Forms, list[Any]]:
    """A_i @ y_i: [n, m, k] and [n, k] to [n, m]."""
    forms: Forms = {
        "bmm": lambda x, y: _bmm(x, y[:, :, None]),
        "bmm, vector left": lambda x, y: _bmm(y[:, None, :], x, adj_y=True),
        "mul+sum": lambda x, y: tf.reduce_sum(x * y[:, None, :], 2),
        "einsum": _einsum("nmk,nk->nm"),
    }
    sizes = [(4096, 4, 4), (1024, 32, 32), (256, 128, 128), (64, 512, 512)]
    return (
        "A_i @ y_i: [n,m,k][n,k,1]",
        forms,
        [(s, (s[0], s[1], s[2]), (s[0], s[2])) for s in sizes],
    )


def vector_matrix() -> tuple[str, Forms, list[Any]]:
    """y_i @ A_i: [n, k, m] and [n, k] to [n, m]."""
    forms: Forms = {
        "bmm": lambda x, y: _bmm(y[:, None, :], x),
        "bmm, matrix left": lambda x, y: _bmm(x, y[:, :, None], adj_x=True),
        "mul+sum": lambda x, y: tf.reduce_sum(x * y[:, :, None], 1),
        "einsum": _einsum("nkm,nk->nm"),
    }
    sizes = [(4096, 4, 4), (1024, 32, 32), (256, 128, 128), (64, 512, 512)]
    return (
        "y_i @ A_i: [n,1,k][n,k,m]",
        forms,
        [(s, (s[0], s[1], s[2]), (s[0], s[1])) for s in sizes],
    )


def dot() -> tuple[str, Forms, list[Any]]:
    """u_i . v_i: [n, k] and [n, k] to [n]."""
    forms: Forms = {
        "bmm": lambda x, y: _bmm(x[:, None, :], y[:, :, None]),
        "mul+sum": lambda x, y: tf.reduce_sum(x * y, 1),
        "einsum": _einsum("nk,nk->n"),
    }
    sizes = [(4096, 4), (4096, 64), (256, 4096)]
    return "dot products [n,1,k][n,k,1]", forms, [(s, s, s) for s in sizes]


def batch_invariant() -> tuple[str, Forms, list[Any]]:
    """x_i[b] @ Y[b]: [n, b, r, k] and [b, k, m] to [n, b, r, m]."""
    forms: Forms = {
        "einsum": _einsum("nbrk,bkm->nbrm"),
        "tile+bmm": lambda x, y: _bmm(x, _tiled(y, x.shape[0])),
    }
    sizes = [(64, 8, 16, 32, 32), (64, 8, 1, 64, 64), (256, 4, 4, 8, 8), (16, 4, 128, 64, 64)]
    return (
        "x_i[b] @ Y[b]: [n,b,r,k][b,k,m]",
        forms,
        [(s, (s[0], s[1], s[2], s[3]), (s[1], s[3], s[4])) for s in sizes],
    )


CASES = (
    outer, left_invariant, left_invariant_transposed, left_vector, right_invariant_transposed,
    matrix_vector, vector_matrix, dot, batch_invariant,
)  # fmt: skip


def measure(forms: Forms, x: tf.Tensor, y: tf.Tensor, repeat: int) -> dict[str, float]:
    """The median seconds of each form; rounds of all forms, so that noise hits all alike."""
    compiled: dict[str, Any] = {}
    expected: Any = None
    for name, fn in forms.items():
        concrete = tf.function(fn, autograph=False).get_concrete_function(
            tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(y.shape, y.dtype)
        )
        found = concrete(x, y).numpy().reshape([-1])
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
        compiled[name] = concrete
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeat):
        for name, concrete in compiled.items():
            start = time.perf_counter()
            concrete(x, y)
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(t)) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for make in CASES:
        title, forms, cases = make()
        print(f"\n{title}\n  {'sizes':24}" + "".join(f"{name:>18}" for name in forms))
        for sizes, x_shape, y_shape in cases:
            x, y = tf.random.normal(x_shape), tf.random.normal(y_shape)
            times = measure(forms, x, y, options.repeat)
            best = min(times.values())
            print(
                f"  {sizes!s:24}"
                + "".join(f"{t / best:>18.2f}" for t in times.values())
                + f"   (1.00 = {best * 1e6:.0f} us)",
                flush=True,
            )
            results.append({"case": title, "sizes": sizes, "seconds": times})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
