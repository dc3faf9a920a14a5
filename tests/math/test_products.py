"""Sums of matrix products: one product over all terms, in unrolled code and over loop trips."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped, vectorized
from tests.ways import assert_same_rows, table_of

N, T, K, M = 3, 4, 10, 12


def normal(*shape, dtype=np.float64):
    rng = np.random.default_rng(sum(shape))
    return tf.constant(rng.normal(size=shape).astype(dtype))


def emitted(graph, found=None):
    """The number of ops of each type in a graph and its functions."""
    found = collections.Counter() if found is None else found
    found.update(op.type for op in graph.get_operations())
    for name in graph._functions if hasattr(graph, "_functions") else ():
        inner = graph._get_function(name)
        if getattr(inner, "graph", None) is not None:
            emitted(inner.graph, found)
    return found


def check(fn, *rows, rtol=1e-10, **options):
    """``fn`` mapped over rows equals ``fn`` of each row; returns the op types emitted."""
    run = tf.function(lambda *xs: mapped(fn, *xs, **options), autograph=False)
    concrete = run.get_concrete_function(*rows)
    assert_same_rows(concrete(*rows), [fn(*(x[i] for x in rows)) for i in range(N)], rtol, rtol)
    return emitted(concrete.graph)


def terms(a, b, r=1, flip_a=False, flip_b=False):
    """The products of T steps, [k, m] each, from [T, r * k] and [T, r * m]."""
    out = []
    for t in range(T):
        x = tf.reshape(a[t], [K, r] if flip_a else [r, K])
        y = tf.reshape(b[t], [M, r] if flip_b else [r, M])
        out.append(tf.matmul(x, y, transpose_a=not flip_a, transpose_b=flip_b))
    return out


def chain(products):
    total = products[0]
    for p in products[1:]:
        total = total + p
    return total


# -- unrolled --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("add", [tf.add_n, chain])
def test_unrolled(add, r, flip_a, flip_b):
    types = check(
        lambda a, b: add(terms(a, b, r, flip_a, flip_b)), normal(N, T, r * K), normal(N, T, r * M)
    )
    assert types["BatchMatMulV2"] == 1
    assert types["Mul"] + types["AddN"] + types["AddV2"] == 0


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_shared_factor(which):
    a, b = normal(N, T, K), normal(N, T, M)
    if which == "a":
        types = check(lambda y: tf.add_n(terms(a[0], y)), b)
    else:
        types = check(lambda x: tf.add_n(terms(x, b[0])), a)
    assert types["BatchMatMulV2"] + types["MatMul"] == 1
    assert types["AddN"] == 0


def test_some_terms_have_a_shared_factor():
    a, b = normal(N, T, K), normal(N, T, M)
    types = check(lambda x, y: tf.add_n([*terms(x, y), *terms(a[0], y), *terms(x, b[0])]), a, b)
    assert types["BatchMatMulV2"] == 1


def test_other_terms_stay():
    own, shared = normal(N, K, M), normal(K, M)

    def f(a, b, c):
        p = terms(a, b)
        return tf.add_n([p[0], c, p[1], shared, p[2]]), shared + p[3] + c + tf.ones([K, 1], c.dtype)

    types = check(f, normal(N, T, K), normal(N, T, M), own)
    assert types["BatchMatMulV2"] == 1


def test_a_product_that_others_read_stays_too():
    def f(a, b):
        p = terms(a, b)
        return tf.add_n(p), tf.exp(p[0]), p[1]

    types = check(f, normal(N, T, K), normal(N, T, M))
    assert types["BatchMatMulV2"] == 1
    assert types["Mul"] == 2


def test_large_factors_stay_apart():
    types = check(lambda a, b: tf.add_n(terms(a, b, 7)), normal(N, T, 7 * K), normal(N, T, 7 * M))
    assert types["BatchMatMulV2"] == T


def test_a_sum_that_broadcasts():
    def f(a, b):
        p = terms(a, b)
        return p[0] + p[1] + tf.reduce_sum(a), p[2] + tf.ones([2, K, M], a.dtype)

    check(f, normal(N, T, K), normal(N, T, M))


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float16", 2e-2), ("complex128", 1e-10), ("int32", 0)]
)
def test_dtypes(dtype, rtol):
    """Sums of up to 30 in float16 are rounded to 0.016, in another order."""
    a, b = (tf.cast(normal(N, T, w) * 3, dtype) for w in (K, M))
    if dtype == "complex128":
        a, b = a * (1 + 2j), b * (2 - 1j)
    check(lambda x, y: tf.add_n(terms(x, y)), a, b, rtol=rtol)
    check(
        lambda x, y: sum(tf.matmul(x[t : t + 1], y[t : t + 1], adjoint_a=True) for t in range(T)),
        a,
        b,
        rtol=rtol,
    )


test_table_of_sums = table_of(
    {"of terms": lambda a, b: tf.add_n(terms(a, b))}, normal(N, T, K), normal(N, T, M),
    ways=["no rows", "one row", "unknown n, few rows"], tolerance=(1e-10, 1e-10),
)  # fmt: skip


def test_an_unknown_number_of_iterations():
    specs = [tf.TensorSpec([None, T, w], tf.float64) for w in (K, M)]
    run = tf.function(lambda *xs: mapped(lambda a, b: tf.add_n(terms(a, b)), *xs))
    assert emitted(run.get_concrete_function(*specs).graph)["BatchMatMulV2"] == 1


def test_explain_says_so():
    report = tf_pfor.explain(lambda a, b: tf.add_n(terms(a, b)), normal(N, T, K), normal(N, T, M))
    assert "a sum of 4 matrix products as one product" in str(report)


# -- recurrent networks ----------------------------------------------------------------------------

W, U, BIAS = (tf.Variable(normal(*s) * 0.5) for s in ([4, 24], [6, 24], [24]))
VARIABLES = [W, U, BIAS]


def step(x, h, c):
    i, f, g, o = tf.split(x @ W + h @ U + BIAS, 4, 1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def unrolled(x):
    h = c = tf.zeros([1, 6], x.dtype)
    for t in range(x.shape[0]):
        h, c = step(x[t : t + 1], h, c)
    return h


def looped(x, length=None, bound=None):
    zero = tf.zeros([1, 6], x.dtype)
    length = x.shape[0] if length is None else length

    def body(t, h, c):
        return (t + 1, *step(x[t][None], h, c))

    return tf.while_loop(lambda t, *_: t < length, body, (0, zero, zero), maximum_iterations=bound)[
        1
    ]


def gradients(model):
    def one(*x):
        return gradient_of(lambda: tf.reduce_sum(model(*x) ** 2), VARIABLES)

    return one


@pytest.mark.parametrize("model", [unrolled, looped])
def test_weights_of_an_lstm(model):
    types = check(gradients(model), normal(N, T, 4))
    assert types["BatchMatMulV2"] == 2  # of W and of U: no outer product is emitted


X = normal(N, T, 4)
LENGTHS = ([2, 4, 3], [0, 4, 1], [0, 0, 0], [4, 4, 4])
OF_LENGTHS = {str(k): (gradients(looped), (X, tf.constant(k))) for k in LENGTHS}
BOUNDED = {
    "bounded": (gradients(lambda x: looped(x, bound=T)), X),
    "bounded, [2, 3, 0]": (
        gradients(lambda x, n: looped(x, n, bound=T)), (X, tf.constant([2, 3, 0]))),
}  # fmt: skip
BOTH = ["unrolled", "looped"]
WAYS = ["compact", "mask", "function", "vmap", "two maps", "function, around"]
test_table_of_true_lengths = table_of(
    {
        "unrolled": (gradients(unrolled), X),
        "looped": (gradients(looped), X),
        # Steps that are the same for all rows, and some rows leave earlier.
        "shared steps": (lambda n: gradients(looped)(X[0], n), tf.constant([2, 4, 3])),
        **OF_LENGTHS,
    },
    ways=WAYS,
    only={
        **dict.fromkeys(["compact", "mask", "function"], OF_LENGTHS),
        "vmap": ["shared steps"],
        "two maps": BOTH,
        "function, around": BOTH,
    },
    by=VARIABLES, tolerance=(1e-10, 1e-12), slopes=(1e-9, 1e-10),
)  # fmt: skip
test_table_of_compiled_lengths = table_of(
    {"unrolled": (gradients(unrolled), X), **BOUNDED}, ways=["compiled"], tolerance=(1e-8, 1e-10)
)


def test_true_length_leaves_no_trace_of_rows_that_left():
    """Numbers that are not finite, in steps after a row's end, stay out of its gradient."""
    x, one = normal(N, T, 4).numpy(), gradients(looped)
    lengths = tf.constant([2, 4, 3])
    for i, length in enumerate(lengths):
        x[i, int(length) :] = np.nan
    for strategy in ("compact", "mask"):
        mapped = tf.function(
            lambda *args, how=strategy: vectorized(one, args, while_strategy=how), autograph=False
        )
        found = mapped(tf.constant(x), lengths)
        assert all(np.isfinite(f).all() for f in found)


@pytest.mark.parametrize("model", [unrolled, looped])
def test_rows_of_a_jacobian(model):
    """One factor is the same for all rows of the jacobian."""
    x = normal(T, 4)

    @tf.function
    def rows():
        with tf.GradientTape(persistent=True) as tape:
            h = model(x)[0]
            parts = [h[i] for i in range(6)]
        by_row = [tape.gradient(part, VARIABLES) for part in parts]
        return tf_pfor.tape_jacobian(tape, h, VARIABLES), by_row

    found, expected = rows()
    for i in range(6):
        for f, e in zip(found, expected[i]):
            np.testing.assert_allclose(f[i], e, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_accumulators_of_a_users_loop(trips):
    """Two products a trip, a start that is not zero, and a count of trips known at run time."""
    count = tf.Variable(trips)

    def f(a, b, start):
        left = tf.TensorArray(a.dtype, T).unstack(a)

        def body(t, total):
            x, y = left.read(t)[None], b[t][None]
            total += tf.matmul(x, y, transpose_a=True)
            return t + 1, total + tf.matmul(2 * x, y**2, transpose_a=True)

        return tf.while_loop(lambda t, _: t < count, body, (0, start))[1]

    types = check(f, normal(N, T, K), normal(N, T, M), normal(N, K, M))
    assert types["TensorListPushBack"] == 4


@pytest.mark.parametrize("how", ["condition", "body", "no list"])
def test_running_sums_that_must_run(how):
    def f(a, b):
        left = tf.TensorArray(a.dtype, T).unstack(a)

        def body(t, total):
            x, y = a[t][None] if how == "no list" else left.read(t)[None], b[t][None]
            if how == "body":
                y += total[:1]
            return t + 1, total + tf.matmul(x, y, transpose_a=True)

        def cond(t, total):
            return t < T if how != "condition" else (t < T) & (tf.reduce_sum(total) < 1e6)

        return tf.while_loop(cond, body, (0, tf.zeros([K, M], a.dtype)))[1]

    types = check(f, normal(N, T, K), normal(N, T, M))
    assert types["TensorListPushBack"] == 0 or how == "condition"


@pytest.mark.parametrize("how", ["before", "after"])
def test_running_sums_that_are_read_behind_an_identity(how):
    """One Identity that several ops read, as in the gradient of a loop."""

    def f(a, b):
        left = tf.TensorArray(a.dtype, T).unstack(a)

        def body(t, total, seen):
            old = tf.identity(total) if how == "before" else total
            new = old + tf.matmul(left.read(t)[None], b[t][None], transpose_a=True)
            new = tf.identity(new) if how == "after" else new
            return t + 1, new, tf.sin(seen) + (old if how == "before" else new)

        zero = tf.zeros([K, M], a.dtype)
        return tf.while_loop(lambda t, *_: t < T, body, (0, zero, zero))[1:]

    types = check(f, normal(N, T, K), normal(N, T, M))
    assert types["TensorListPushBack"] == 0
