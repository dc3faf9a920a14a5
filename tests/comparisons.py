"""A function of a row: mapped, in a Python loop over the rows, with gradients; and comparisons."""

import concurrent.futures
import contextlib

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor import _tf
from tf_pfor._tf import _functions
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.inputs import Element
from tf_pfor.core import nests
from tf_pfor.core.report import Recorder
from tf_pfor.tracing.trace import trace
from tf_pfor.walker.walker import Settings


@tf.autograph.experimental.do_not_convert
def vectorized(f, args, recorder=None, **settings):
    """``f`` over the rows of ``args``, in the current graph; nothing may loop over rows."""
    n = args[0].shape[0]
    n = tf.shape(args[0])[0] if n is None else n
    elements = [Element(a) for a in args]
    body = trace(_functions.autographed(f), [e.spec for e in elements])
    recorder = Recorder() if recorder is None else recorder
    leaves = convert_body(
        body, elements, n, Settings(settings.pop("fallback", "error"), **settings), recorder
    )
    return [x for x in leaves if isinstance(x, tf.Tensor)]


def looped(f, args, n):
    """A Python loop over the rows, and tf.stack."""
    f = _functions.autographed(f)
    rows = [nests.flatten(f(*[a[r] for a in args])) for r in range(n)]
    return [tf.stack(column) for column in zip(*rows)]


def notes(f, *args, **settings):
    """The notes of the report on control flow."""
    recorder = Recorder()
    with tf.Graph().as_default():
        tf.function(
            lambda *a: vectorized(f, a, recorder, **settings), autograph=False
        ).get_concrete_function(*[tf.TensorSpec(np.shape(a), tf.as_dtype(a.dtype)) for a in args])
    return [reason for _, _, reason in recorder.entries if reason]


def _total(outputs):
    total = tf.constant(0.0, tf.float64)
    for k, out in enumerate(outputs):
        if out.dtype.is_floating:
            weight = tf.cos(tf.range(tf.size(out), dtype=tf.float64) + float(k))
            total += tf.reduce_sum(tf.cast(tf.reshape(out, [-1]), tf.float64) * weight)
    return total


def _gradients(run, args, second):
    floats = [i for i, a in enumerate(args) if a.dtype.is_floating]

    @tf.function(autograph=False)
    def go(*given):
        watched = [given[i] for i in floats]
        with tf.GradientTape() as outer:
            outer.watch(watched)
            with tf.GradientTape() as tape:
                tape.watch(watched)
                total = _total(run(given))
            first = tape.gradient(total, watched, unconnected_gradients="zero")
            first = [tf.convert_to_tensor(g) for g in first]
            again = _total(first)
        if not second:
            return first
        more = outer.gradient(again, watched, unconnected_gradients="zero")
        return first, [tf.convert_to_tensor(g) for g in more]

    return tf.nest.flatten(go(*args))


def check(f, *args, xla=True, grad=True, second=False, unknown=False, rtol=2e-5, **settings):
    """Compares ``f`` over the rows of ``args`` with a Python loop over them.

    Args:
      f: one iteration.
      *args: arrays; axis 0 is the loop.
      xla: also under jit_compile.
      grad: also gradients.
      second: also second gradients.
      unknown: also with n known only when running.
      rtol: tolerance, also the absolute one.
      **settings: the settings of the conversion.
    """
    args = [tf.constant(a) for a in args]
    n = args[0].shape[0]
    expected = tf.function(lambda *a: looped(f, a, n))(*args) if n else None

    def same(found, wanted, what):
        assert len(found) == len(wanted), what
        for a, b in zip(found, wanted):
            assert a.shape == b.shape, (what, a.shape, b.shape)
            assert a.dtype == b.dtype, (what, a.dtype, b.dtype)
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol, rtol, err_msg=what)

    modes = [("static", {}, False)]
    modes += [("unknown n", {}, True)] if unknown else []
    modes += [("jit_compile", {"jit_compile": True}, False)] if xla and n else []
    for what, options, dynamic in modes:
        specs = [tf.TensorSpec([None, *a.shape[1:]] if dynamic else a.shape, a.dtype) for a in args]
        run = tf.function(lambda *a: vectorized(f, a, **settings), autograph=False, **options)
        concrete = run.get_concrete_function(*specs)
        found = concrete(*args)
        if expected is None:
            assert all(x.shape[0] == 0 for x in found), what
        else:
            same(found, expected, what)
            for x in concrete.outputs:
                assert x.shape[0] == (None if dynamic else n), (what, x.shape)
    if grad and n and any(a.dtype.is_floating for a in args):
        found = _gradients(lambda a: vectorized(f, a, **settings), args, second)
        wanted = _gradients(lambda a: looped(f, a, n), args, second)
        same(found, wanted, "gradients")


def row_of(table, *args, **options):
    """Adds a function of a row to a table, by its name, with what ``check`` gets."""

    def add(f):
        table[f.__name__.replace("_", " ")] = (f, args, options)
        return f

    return add


def value_and_gradient(of, sources, **options):
    """The result of ``of()`` under a tape, which finds variables, and its gradients."""
    with tf.GradientTape() as tape:
        tape.watch([s for s in tf.nest.flatten(sources) if not hasattr(s, "assign")])
        y = of()
    return y, tape.gradient(y, sources, **options)


def gradient_of(of, sources, **options):
    return value_and_gradient(of, sources, **options)[1]


def jacobian_of(of, sources, **options):
    """``tape_jacobian`` of the result of ``of()``."""
    with tf.GradientTape() as tape:
        tape.watch([s for s in tf.nest.flatten(sources) if not hasattr(s, "assign")])
        y = of()
    return tf_pfor.tape_jacobian(tape, y, sources, **options)


def gradient_in_body(model, power=2):
    """The gradient of the sum of ``model(*args) ** power`` by the last argument, in the body."""
    return lambda *args: gradient_of(lambda: tf.reduce_sum(model(*args) ** power), args[-1])


def gradients_in_body(model, by=(-1,), also=()):
    """Gradients of the sum of squares, by the arguments at ``by`` and by ``also``; or zeros."""

    def one(*args):
        sources = [*(args[i] for i in by), *also]
        loss = lambda: tf.reduce_sum(model(*args) ** 2)  # noqa: E731
        return gradient_of(loss, sources, unconnected_gradients="zero")

    return one


def two_orders(run, x, shared):
    """The result, first and second gradients by x and by tensors and variables beside it."""
    sources = [x, *shared]
    watched = [s for s in sources if not isinstance(s, tf.Variable)]
    with tf.GradientTape() as outer:
        outer.watch(watched)
        with tf.GradientTape() as inner:
            inner.watch(watched)
            y = run(x)
            weights = tf.reshape(tf.cos(tf.range(tf.cast(tf.size(y), y.dtype))), tf.shape(y))
            total = tf.reduce_sum(y * weights)
        first = inner.gradient(total, sources, unconnected_gradients="zero")
        curved = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in first])
    return [y, *first, *outer.gradient(curved, sources, unconnected_gradients="zero")]


def strict_map(fn, elems, **options):
    """vectorized_map; nothing may loop over rows, unless ``fallback`` says so."""
    return tf_pfor.vectorized_map(fn, elems, **{"fallback": "error", **options})


def strict(fn, **options):
    """vmap; nothing may loop over rows, unless ``fallback`` says so."""
    return tf_pfor.vmap(fn, **{"fallback": "error", **options})


def mapped(one, *args, **options):
    """strict_map of ``one(*row)``."""
    return strict_map(lambda row: one(*row), args, **options)


def by_row(one, *args, maps=1):
    """``one(*row)`` for one row after the other, over the first ``maps`` axes of ``args``."""
    one, shape = tf.function(one), args[0].shape[:maps]
    rows = [one(*(a[place] for a in args)) for place in np.ndindex(*shape)]
    return tf.nest.map_structure(
        lambda *parts: tf.reshape(tf.stack(parts), [*shape, *parts[0].shape]), *rows
    )


def compare(one, *args, maps=1, rtol=1e-9, atol=1e-12, function=None, **options):
    """A map of ``one``, or ``maps`` of them in each other, against one row after the other.

    Args:
      one: a function of a row, whose results have one shape.
      *args: arrays; axis 0 is the loop, and so are the next axes of several maps.
      maps: the number of maps.
      rtol: the relative tolerance.
      atol: the absolute tolerance.
      function: options of a tf.function around all maps; None if there is none.
      **options: options of the maps.
    """

    def run(depth):
        return one if depth == 0 else lambda *rows: mapped(run(depth - 1), *rows, **options)

    of_all = run(maps) if function is None else tf.function(run(maps), autograph=False, **function)
    found = of_all(*args)
    if 0 in args[0].shape[:maps]:
        assert all(t.shape[:maps] == args[0].shape[:maps] for t in tf.nest.flatten(found))
    else:
        assert_close(found, by_row(one, *args, maps=maps), rtol, atol)


def in_threads(work, numbers):
    """The results of ``work`` for each number, in a thread for each; raises errors of threads."""
    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(work, numbers))


@contextlib.contextmanager
def keras_policy(name):
    """The dtype policy of Keras meanwhile."""
    config = tf.keras.config
    before = config.dtype_policy()
    config.set_dtype_policy(name)
    try:
        yield
    finally:
        config.set_dtype_policy(before)


def of_unknown_n(x):
    """The spec of a tensor, dense, ragged or sparse, with the number of rows not known."""
    if isinstance(x, tf.SparseTensor):
        return tf.SparseTensorSpec([None, *x.shape[1:]], x.dtype)
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, *x.shape[1:]], x.dtype, x.ragged_rank)
    return tf.TensorSpec([None, *x.shape[1:]], x.dtype)


def close(found, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def assert_close(found, expected, rtol=1e-9, atol=1e-12):
    """Two nests have tensors of the same shapes and dtypes, and of equal values up to rounding."""
    found, expected = tf.nest.flatten(found), tf.nest.flatten(expected)
    for f, e in zip(found, expected, strict=True):
        assert (f.shape, f.dtype) == (e.shape, e.dtype)
        np.testing.assert_allclose(f, e, rtol=rtol, atol=atol)


def row_at(x, i):
    """A row of a tensor, dense, ragged or sparse."""
    if not isinstance(x, tf.SparseTensor):
        return x[i]
    mine = x.indices[:, 0] == i
    places, values = (tf.boolean_mask(part, mine) for part in (x.indices, x.values))
    return tf.SparseTensor(places[:, 1:], values, x.dense_shape[1:])


def first_rows(x, n):
    """The first n rows of a tensor, dense, ragged or sparse; all if n is None."""
    if not isinstance(x, tf.SparseTensor) or n is None:
        return x[:n] if n is not None else x
    return tf.sparse.slice(x, [0] * len(x.shape), [n, *x.shape[1:]])


def pairwise(check, found, expected, *args, **options):
    """``check`` of each pair of two sequences of one length."""
    for f, e in zip(found, expected, strict=True):
        check(f, e, *args, **options)


def rows_of(body, *args, eager=False):
    """The results of ``body`` for each row of ``args``; shapes may differ."""
    one = body if eager else tf.function(body, reduce_retracing=True)
    return [one(*(row_at(a, i) for a in args)) for i in range(int(tf.shape(args[0])[0]))]


def assert_rows(found, rows, rtol=1e-5, atol=1e-6):
    """The results of a map, dense or ragged, are these rows, of the same dtypes."""
    for column in tf.nest.flatten(found):
        assert int(tf.shape(column)[0]) == len(rows)
    for i, row in enumerate(rows):
        for column, want in zip(tf.nest.flatten(found), tf.nest.flatten(row), strict=True):
            got = column[i]
            want = want.to_tensor() if isinstance(want, tf.RaggedTensor) else want
            assert got.dtype == want.dtype
            if tf.size(want) == 0:  # to_tensor of no rows fails where an inner axis is uniform
                assert tf.size(tf.nest.flatten(got, expand_composites=True)[0]) == 0
                continue
            got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def compare_rows(body, *args, unknown=False, rtol=1e-5, atol=1e-6, **options):
    """A map of ``body`` against a call for each row; of unknown n, also of no rows and of one."""
    run, counts = lambda *a: mapped(body, *a, **options), [None]
    if unknown:
        run = tf.function(run, input_signature=[of_unknown_n(a) for a in args], autograph=False)
        counts = [None, 0, 1]
    rows, kinds = rows_of(body, *args), set()
    for n in counts:
        found = run(*(a[:n] for a in args))
        assert_rows(found, rows[:n], rtol, atol)
        kinds.add(tuple(isinstance(x, tf.RaggedTensor) for x in tf.nest.flatten(found)))
    assert len(kinds) == 1


def flat(columns):
    """All floats of a nest of tensors and of ragged rows, one behind the other."""
    columns = [getattr(x, "flat_values", x) for x in tf.nest.flatten(columns)]
    columns = [tf.reshape(x, [-1]) for x in columns if x.dtype.is_floating]
    return tf.concat(columns, 0) if columns else tf.zeros([0])


def compare_around(
    body, *args, by=(), in_function=False, eager=False, rtol=1e-5, atol=1e-6, **options
):
    """The gradients of a tape around a map of ``body`` against those around a call for each row.

    Args:
      body: a function of a row.
      *args: dense or ragged arguments; axis 0 is the loop.
      by: sources beside the floats of ``args``.
      in_function: whether the map and its tape are in a tf.function.
      eager: whether the calls for each row are eager.
      rtol: the relative tolerance.
      atol: the absolute tolerance.
      **options: options of the map.
    """
    sources = [getattr(a, "flat_values", a) for a in args if a.dtype.is_floating]
    sources += by

    def slopes(results):
        def total():
            x = flat(results())
            x = tf.sin(tf.where(tf.math.is_finite(x), x, 0.0))
            return tf.reduce_sum(x * tf.cos(tf.range(tf.cast(tf.size(x), x.dtype))))

        found = gradient_of(total, sources, unconnected_gradients="zero")
        return [tf.convert_to_tensor(g) for g in found]

    def columns():
        return list(zip(*map(tf.nest.flatten, rows_of(body, *args, eager=eager))))

    run = lambda: slopes(lambda: mapped(body, *args, **options))  # noqa: E731
    found = tf.function(run, autograph=False)() if in_function else run()
    assert_close(found, slopes(columns), rtol=rtol, atol=atol)


def in_two_maps(one, *args):
    """``one`` over the first two axes of ``args``."""
    return mapped(lambda *rows: mapped(one, *rows), *args)


def all_ops(graph):
    """The ops of a graph and of the loops in it."""
    for op in graph.get_operations():
        yield op
        if op.type in ("While", "StatelessWhile"):
            for name in ("cond", "body"):
                yield from all_ops(_tf.function_graph(graph, op.get_attr(name).name))


def needed_ops(outputs):
    """The ops of a graph that its outputs are made of."""
    todo, seen = [t.op for t in outputs], set()
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [t.op for t in op.inputs]
    return seen
