"""Jacobians of what TensorFlow programs are made of, against its own row-by-row loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import assert_close, gradient_of

keras = tf.keras


def normal(*shape, seed=0, dtype=np.float64):
    return tf.constant(np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype))


dense = lambda value: np.asarray(tf.convert_to_tensor(value))


def compare(fn, sources, *, tolerance=1e-9, eager=True, jit=False, blocks=2):
    """``tape_jacobian`` of ``fn()`` equals TensorFlow's jacobian that runs row by row.

    Args:
      fn: computes a tensor from ``sources``.
      sources: a nest of tensors and variables.
      tolerance: the relative and absolute difference that is allowed.
      eager: whether an eager tape is tried too.
      jit: whether ``jit_compile`` is tried too.
      blocks: rows at once in a second try.
    """

    def taped(**options):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([s for s in tf.nest.flatten(sources) if isinstance(s, tf.Tensor)])
            target = fn()
        return tape, target, options

    def ours(**options):
        tape, target, options = taped(**options)
        return tf_pfor.tape_jacobian(tape, target, sources, **options)

    def theirs():
        tape, target, _ = taped()
        leaves = tf.nest.flatten(sources)
        return [tape.jacobian(target, s, experimental_use_pfor=False) for s in leaves]

    expected = tf.function(theirs, autograph=False)()
    runs = [
        tf.function(ours, autograph=False),
        lambda: tf.function(ours, autograph=False)(parallel_iterations=blocks),
    ]
    runs += [ours] if eager else []
    runs += [tf.function(ours, autograph=False, jit_compile=True)] if jit else []
    for run in runs:
        found = run()
        tf.nest.assert_same_structure(found, sources)
        for f, e in zip(tf.nest.flatten(found), expected, strict=True):
            assert (f is None) == (e is None)
            if e is not None:
                assert f.dtype == e.dtype
                np.testing.assert_allclose(dense(f), dense(e), rtol=tolerance, atol=tolerance)


# -- loops -----------------------------------------------------------------------------------------


def test_while_loop():
    """Wrt the initial state, what is captured, and a weight."""
    w, h, x = tf.Variable(normal(3, 3)), normal(3, seed=1), normal(4, 3)

    def fn():
        body = lambda t, state: (t + 1, tf.tanh(tf.linalg.matvec(w, state) + x[t]))
        return tf.while_loop(lambda t, _: t < 4, body, (0, h))[1]

    compare(fn, {"h": h, "x": x, "w": w})


def test_while_loop_whose_trips_depend_on_data():
    h = normal(3) + 1.0
    fn = lambda: tf.while_loop(lambda s: tf.reduce_sum(s**2) < 50.0, lambda s: (s * 1.7,), (h,))[0]
    compare(fn, h)


def test_scan():
    w, x, start = tf.Variable(normal(3, 3)), normal(4, 3), normal(3, seed=2)
    fn = lambda: tf.scan(lambda s, e: tf.tanh(tf.linalg.matvec(w, s) * e), x, start)
    compare(fn, [start, x, w])


def test_map_fn_and_fold():
    x = normal(4, 3)
    compare(lambda: tf.map_fn(lambda e: tf.sin(e) * tf.reduce_sum(e), x), x)
    compare(lambda: tf.foldl(lambda s, e: s * tf.cos(e), x), x)


@grid(layer=["LSTM", "GRU", "SimpleRNN"], unroll=[True, False])
def test_keras_recurrent_layers(layer, unroll):
    keras.utils.set_random_seed(0)
    made = getattr(keras.layers, layer)(3, unroll=unroll, dtype="float64", return_sequences=True)
    x = normal(2, 4, 2)
    made.build(x.shape)
    state = [normal(2, 3, seed=i) for i in range(2 if layer == "LSTM" else 1)]
    weights = [v.value for v in made.trainable_variables]
    compare(lambda: made(x, initial_state=state), [x, *state, *weights])


def test_keras_bidirectional():
    keras.utils.set_random_seed(0)
    made = keras.layers.Bidirectional(
        keras.layers.LSTM(2, dtype="float64", use_cudnn=False), dtype="float64"
    )
    x = normal(2, 3, 2)
    made.build(x.shape)
    compare(lambda: made(x), [x, *[v.value for v in made.trainable_variables]])


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_keras_dynamic_length(layer):
    """The number of steps is known when it runs only."""
    keras.utils.set_random_seed(0)
    made = getattr(keras.layers, layer)(2, dtype="float64", use_cudnn=False)
    made.build([None, None, 2])

    @tf.function(input_signature=[tf.TensorSpec([None, None, 2], tf.float64)], autograph=False)
    def both(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = made(x)
        weights = [v.value for v in made.trainable_variables]
        expected = [tape.jacobian(y, s, experimental_use_pfor=False) for s in [x, *weights]]
        return tf_pfor.tape_jacobian(tape, y, [x, *weights]), expected

    for length in (1, 3):
        found, expected = both(normal(2, length, 2))
        assert_close(found, expected, atol=1e-10)


# -- branches, linear algebra, custom gradients ----------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_and_switch_case(sign):
    x = normal(3) * sign
    cond = lambda: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: x**3)

    def switch():
        branches = [lambda: x * 2, lambda: tf.exp(x), lambda: x * tf.reduce_sum(x)]
        return tf.switch_case(tf.cast(tf.reduce_sum(x) > 0, tf.int32), branches)

    compare(cond, x)
    compare(switch, x)


_LINALG = {
    "cholesky": lambda a: tf.linalg.cholesky(a @ tf.transpose(a) + tf.eye(3, dtype=a.dtype)),
    "det": tf.linalg.det,
    "eigh": lambda a: tf.linalg.eigh(a + tf.transpose(a))[0],
    "inv": tf.linalg.inv,
    "qr": lambda a: tf.linalg.qr(a)[1],
    "solve": lambda a: tf.linalg.solve(a, a[:, :1] ** 2),
    "svd": lambda a: tf.linalg.svd(a, compute_uv=False),
    "triangular": lambda a: tf.linalg.triangular_solve(a + 4 * tf.eye(3, dtype=a.dtype), a),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_LINALG))
def test_linalg(name):
    a = normal(3, 3, seed=5)
    compare(lambda: _LINALG[name](a), a, tolerance=1e-8)


def test_custom_gradient():
    """A gradient that is not the derivative: what was registered counts."""
    x = normal(3)
    clipped = tf.custom_gradient(lambda v: (v**2, lambda dy: tf.clip_by_value(dy, -0.5, 0.5) * v))
    compare(lambda: tf.sin(clipped(x)), x)


def test_saved_model(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            self.w = tf.Variable(normal(3, 3))

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float64)])
        def __call__(self, x):
            for _ in range(2):
                x = tf.tanh(x @ self.w)
            return x

    tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    x = normal(2, 3)
    compare(lambda: loaded(x), [x, loaded.w])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    """The same roundings in both; 1e-2 is a few units of bfloat16."""
    keras.utils.set_random_seed(0)
    made = keras.layers.Dense(3, activation="tanh", dtype=policy)
    x = normal(2, 4, dtype=np.float32)
    made.build(x.shape)
    weights = [v.value for v in made.trainable_variables]
    compare(lambda: tf.cast(made(x), tf.float32), [x, *weights], tolerance=1e-2)


def test_jit_compile():
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Conv2D(2, 2, activation="relu", dtype="float64"),
        keras.layers.Flatten(),
        keras.layers.Dense(3, dtype="float64"),
    ]
    model = keras.Sequential(layers)
    x = normal(2, 4, 4, 1)
    model.build(x.shape)
    compare(lambda: model(x), [x, *[v.value for v in model.trainable_variables]], jit=True)


# -- kinds of sources and targets ------------------------------------------------------------------


def test_nests_of_sources():
    a, b, v = normal(2), normal(3, seed=1), tf.Variable(normal(2, seed=2))
    sources = {"a": [a, (b,)], "v": v, "unused": normal(4)}
    compare(lambda: tf.concat([a * v, tf.cumsum(b)], 0)[None], sources)


def test_rows_of_an_embedding():
    table = tf.Variable(normal(5, 2))
    compare(lambda: tf.reshape(tf.nn.embedding_lookup(table, [[3, 1], [3, 0]]), [4, 2]) ** 2, table)


@pytest.mark.parametrize("fn", [lambda z: z * z, lambda z: tf.exp(z) / (z + 3), tf.signal.fft])
def test_complex(fn):
    """Row k is the gradient for a cotangent of one in output k, as TensorFlow's tape has it."""
    z = tf.complex(normal(3), normal(3, seed=1))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(z)
        y = fn(z)
    found = tf_pfor.tape_jacobian(tape, y, z)
    for k, unit in enumerate(np.eye(3)):
        row = tape.gradient(y, z, output_gradients=tf.constant(unit, z.dtype))
        np.testing.assert_allclose(found[k], row, rtol=1e-12, atol=1e-12)


def test_parts_of_complex():
    x = normal(3)
    compare(lambda: tf.math.real(tf.signal.fft(tf.complex(x, 2 * x))), x)


@pytest.mark.parametrize("shape", [[0], [0, 3], [2, 0]])
def test_empty_outputs(shape):
    x = normal(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.zeros(shape, x.dtype) * tf.reduce_sum(x)
    assert tf_pfor.tape_jacobian(tape, y, x).shape == [*shape, 3]


def test_empty_sources_and_scalars():
    x, empty, scalar = normal(3), tf.zeros([0, 2], tf.float64), tf.constant(2.0, tf.float64)
    compare(lambda: x * (scalar + tf.reduce_sum(empty)), [x, empty, scalar])


# -- against numerical differentiation ---------------------------------------------------


def lstm(x, w, u, np_like):
    """An LSTM over the rows of x, with the functions of ``np_like``: TensorFlow's or JAX's."""
    sigmoid = lambda z: 1 / (1 + np_like.exp(-z))
    h = c = np_like.zeros([1, 3], x.dtype)
    for t in range(4):
        z = x[t][None] @ w + h @ u
        i, f, g, o = (z[:, k : k + 3] for k in range(0, 12, 3))
        c = c * sigmoid(f) + np_like.tanh(g) * sigmoid(i)
        h = np_like.tanh(c) * sigmoid(o)
    return h[0]


GIVEN = (normal(4, 2), normal(2, 12), normal(3, 12))


def test_numerical_differentiation():
    """Central differences in float64, right to 1e-8."""
    for k in range(3):

        def fn(value, k=k):
            return lstm(*[value if i == k else g for i, g in enumerate(GIVEN)], tf)

        value = GIVEN[k].numpy()
        columns = []
        for e in np.eye(value.size).reshape(-1, *value.shape) * 1e-6:
            columns.append((fn(tf.constant(value + e)) - fn(tf.constant(value - e))) / 2e-6)
        expected = np.stack(columns, -1).reshape(3, *value.shape)
        for jac in (tf_pfor.jacrev, tf_pfor.jacfwd):
            np.testing.assert_allclose(jac(fn)(GIVEN[k]), expected, rtol=1e-7, atol=1e-8)


def scalar_loss(w, x):
    """A loss of a network whose example has rows: [m, 5, 2] and weights [2, 4]."""
    return tf.reduce_sum((tf.tanh(x @ w) @ tf.constant([[1.0], [-2.0], [0.5], [3.0]])) ** 2)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("shape", [(5, 2), (1, 5, 2), (5, 3, 2), (4, 1, 3, 2)], ids=str)
def test_jacobian_of_a_scalar_loss_in_a_map(shape, rows):
    """One cotangent, and products of rows that are folded with it."""
    rng = np.random.default_rng(0)
    w = tf.constant(rng.normal(size=[2, 4]), tf.float32)
    x = tf.constant(rng.normal(size=[rows, *shape]), tf.float32)
    gradient = lambda x: gradient_of(lambda: scalar_loss(w, x), w)

    def inside(x):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = scalar_loss(w, x)
        return tape.jacobian(loss, w)

    expected = np.reshape([gradient(r) for r in x], [rows, 2, 4])
    one = tf_pfor.jacrev(scalar_loss)
    mapped = tf_pfor.vmap(one, in_axes=(None, 0))
    calls = {
        "eagerly": lambda x: mapped(w, x),
        "chunks": lambda x: tf_pfor.vmap(one, in_axes=(None, 0), chunk_size=2)(w, x),
        "a tape": lambda x: tf_pfor.vectorized_map(inside, x),
        "two maps": lambda x: tf_pfor.vmap(lambda v: mapped(w, v))(x[None])[0],
    }
    fixed = tf.TensorSpec(x.shape)
    calls["a graph"] = tf.function(calls["eagerly"], input_signature=[fixed])
    calls["unknown n"] = tf.function(
        calls["eagerly"], input_signature=[tf.TensorSpec([None, *shape])]
    )
    if rows:
        calls["compiled"] = tf.function(calls["eagerly"], input_signature=[fixed], jit_compile=True)
        batches = tf.data.Dataset.from_tensor_slices(x).batch(2).map(calls["eagerly"])
        calls["a dataset"] = lambda x: tf.concat(list(batches), 0)
    for name, call in calls.items():
        found = call(x)
        assert found.shape == expected.shape, name
        np.testing.assert_allclose(found, expected, 1e-4, 1e-4, err_msg=name)
