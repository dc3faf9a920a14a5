"""Composites whose type knows how it is batched: results and elements go through its encoder."""

import typing

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of

X = tf.random.stateless_normal([4, 3, 3], [1, 2])
D = tf.random.stateless_normal([4, 3], [1, 3])
ops = tf.linalg


def _with_rank(tensor, rank):
    return tf.reshape(tensor, tf.concat([tf.ones([rank - tensor.shape.rank], tf.int32),
                                         tf.shape(tensor)], 0))  # fmt: skip


class _Encoder(tf.experimental.ExtensionTypeBatchEncoder):
    """Both parts get the larger rank, so that they broadcast with one more axis in front."""

    def encode(self, spec, value, minimum_rank=0):
        rank = max(spec.loc.shape.rank, spec.scale.shape.rank, minimum_rank)
        made = [_with_rank(t, rank) for t in (value.loc, value.scale)]
        if minimum_rank:
            n = tf.maximum(*[tf.shape(t)[0] for t in made])
            made = [tf.broadcast_to(t, tf.concat([[n], tf.shape(t)[1:]], 0)) for t in made]
        return made

    def decode(self, spec, encoded_value):
        return Scaled(*encoded_value)

    def encoding_specs(self, spec):
        return [tf.TensorSpec(None, s.dtype) for s in (spec.loc, spec.scale)]


class Scaled(tf.experimental.BatchableExtensionType):
    """Numbers around ``loc``, which broadcast against ``scale``."""

    loc: tf.Tensor
    scale: tf.Tensor
    __batch_encoder__ = _Encoder()

    def total(self):
        return tf.reduce_sum(self.loc * self.scale)


WAYS = {
    "eagerly": lambda fn, x: tf_pfor.vectorized_map(fn, x),
    "in a function": lambda fn, x: tf.function(tf_pfor.vectorized_map, autograph=False)(fn, x),
    "compiled": lambda fn, x: tf.function(lambda y: tf_pfor.vectorized_map(fn, y), autograph=False,
                                          jit_compile=True)(x),
    "vmap": lambda fn, x: tf_pfor.vmap(fn)(x),
    "in chunks": lambda fn, x: tf_pfor.vectorized_map(fn, x, chunk_size=2),
}  # fmt: skip


@grid(way=WAYS, n=[0, 1, 4])
def test_parts_of_different_ranks_still_broadcast(way, n):
    for _ in range(2):  # the second time by the kept trace
        made = WAYS[way](lambda row: Scaled(row, row[0]), D[:n])
        assert (made.loc.shape, made.scale.shape) == ((n, 3), (n, 1))
        np.testing.assert_allclose(made.loc * made.scale, D[:n] * D[:n, :1], rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_elements(way):
    """A part that all rows share belongs to each row, as the type says."""
    shared = tf.constant([1.0, 2.0, 3.0, 4.0])
    batch = Scaled(tf.random.stateless_normal([4, 4], [1, 4]), shared)
    found = WAYS[way](lambda one: one.total(), batch)
    np.testing.assert_allclose(found, tf.reduce_sum(batch.loc * shared, 1), rtol=1e-5)


OPERATORS = {
    "diag": lambda x, d: ops.LinearOperatorDiag(d),
    "identity": lambda x, d: ops.LinearOperatorScaledIdentity(3, d[0]),
    "update": lambda x, d: ops.LinearOperatorLowRankUpdate(
        ops.LinearOperatorDiag(d * d + 1.0), x, diag_update=d * d
    ),
    "shared": lambda x, d: ops.LinearOperatorLowRankUpdate(
        ops.LinearOperatorDiag(tf.constant([1.0, 2.0, 3.0])), x
    ),
    "several": lambda x, d: ops.LinearOperatorComposition(
        [ops.LinearOperatorScaledIdentity(3, d[0]), ops.LinearOperatorFullMatrix(x)]
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    body = OPERATORS[name]
    made = tf_pfor.vectorized_map(lambda e: body(*e), (X, D), fallback_to_while_loop=False)
    assert type(made) is type(body(X[0], D[0]))
    assert made.shape == [4, 3, 3]
    want = tf.stack([body(*row).to_dense() for row in zip(X, D)])
    np.testing.assert_allclose(made.to_dense(), want, rtol=1e-5, atol=1e-6)
    again = tf_pfor.vectorized_map(lambda op: op.matvec(tf.ones([3])), made)
    np.testing.assert_allclose(again, tf.reduce_sum(want, -1), rtol=1e-4, atol=1e-5)


def test_gradients_and_maps_in_maps():
    @tf.function(autograph=False)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = tf_pfor.vectorized_map(
                lambda rows: tf_pfor.vectorized_map(lambda r: Scaled(r, r[0]), rows), x
            )
            y = tf.reduce_sum(made.loc * made.scale)
        return made, tape.gradient(y, x)

    made, found = run(X)
    assert (made.loc.shape, made.scale.shape) == ((4, 3, 3), (4, 3, 1))
    np.testing.assert_allclose(
        found, gradient_of(lambda: tf.reduce_sum(X * X[..., :1]), X), rtol=1e-5
    )


def test_the_mapped_axis_is_in_front():
    with pytest.raises(tf_pfor.ArgumentError, match=r"axis of a LinearOperatorDiag.*Expected: 0"):
        tf_pfor.vmap(ops.LinearOperatorDiag, out_axes=1)(D)


def _without_tensors(batch):
    return {
        "identity": ops.LinearOperatorIdentity(3, batch_shape=batch),
        "zeros": ops.LinearOperatorZeros(3, batch_shape=batch),
    }


@grid(name=["identity", "zeros"], way=WAYS)
def test_operators_whose_batch_is_in_no_tensor_are_refused(way, name):
    alone = _without_tensors([4])[name]
    inside = ops.LinearOperatorBlockDiag([ops.LinearOperatorFullMatrix(X), alone])
    kind = type(alone).__name__
    for op in (alone, inside):
        with pytest.raises(tf_pfor.ArgumentError, match=f"A {kind}.*among the elements.*to_dense"):
            WAYS[way](lambda e: e[0].diag_part() + e[1][0], (op, D))
    with pytest.raises(tf_pfor.ArgumentError, match=f"A {kind} that the body returns.*to_dense"):
        WAYS[way](lambda _: _without_tensors([])[name], D)


def test_parts_of_operators_with_fewer_axes_are_refused():
    """Axis 0 of a matrix that all rows share is as long as the batch."""
    x = tf.random.stateless_normal([4, 4, 3, 3], [1, 2])
    full = ops.LinearOperatorFullMatrix
    op = ops.LinearOperatorComposition([full(x[0]), full(x)])
    with pytest.raises(tf_pfor.ArgumentError, match="A LinearOperatorFullMatrix in a .*elements"):
        tf_pfor.vectorized_map(lambda e: e.matvec(tf.ones([3])), op)
    with pytest.raises(tf_pfor.ArgumentError, match="A LinearOperatorFullMatrix in a .*returns"):
        tf_pfor.vectorized_map(lambda r: ops.LinearOperatorComposition([full(x[0, 0]), full(r)]), x)


@grid(batch=[[], [2]], way=WAYS)
def test_operators_without_tensors_that_all_rows_share(way, batch):
    x = tf.random.stateless_normal([4, 2, 3, 3], [1, 2])

    def body(row):
        return ops.LinearOperatorBlockDiag(
            [ops.LinearOperatorFullMatrix(row), _without_tensors(batch)["identity"]]
        )

    want = tf.stack([body(row).to_dense() for row in x])
    made = WAYS[way](body, x)
    assert made.shape == [4, 2, 6, 6]
    np.testing.assert_allclose(made.to_dense(), want, rtol=1e-6)
    np.testing.assert_allclose(WAYS[way](lambda op: op.to_dense(), made), want, rtol=1e-6)
    shared = tf_pfor.vmap(lambda op, d: op.matvec(d), in_axes=(None, 0))
    np.testing.assert_allclose(shared(_without_tensors([])["identity"], D), D)


STACKED = {
    "diag": lambda x, d: ops.LinearOperatorDiag(d),
    "full": lambda x, d: ops.LinearOperatorFullMatrix(x),
    "lower": lambda x, d: ops.LinearOperatorLowerTriangular(x),
    "scaled": lambda x, d: ops.LinearOperatorScaledIdentity(3, d[..., 0]),
    "update": lambda x, d: ops.LinearOperatorLowRankUpdate(
        ops.LinearOperatorDiag(d * d + 1.0), x, diag_update=d * d
    ),
    "composition": lambda x, d: ops.LinearOperatorComposition(
        [ops.LinearOperatorDiag(d), ops.LinearOperatorFullMatrix(x)]
    ),
    "kronecker": lambda x, d: ops.LinearOperatorKronecker(
        [ops.LinearOperatorFullMatrix(x), ops.LinearOperatorIdentity(2)]
    ),
    "block lower": lambda x, d: ops.LinearOperatorBlockLowerTriangular(
        [[ops.LinearOperatorDiag(d)],
         [ops.LinearOperatorFullMatrix(x), ops.LinearOperatorIdentity(3)]]
    ),
    "householder": lambda x, d: ops.LinearOperatorHouseholder(d),
    "toeplitz": lambda x, d: ops.LinearOperatorToeplitz(d, d),
    "tridiag": lambda x, d: ops.LinearOperatorTridiag([d, d, d], diagonals_format="sequence"),
    "compact": lambda x, d: ops.LinearOperatorTridiag(x),
    "circulant": lambda x, d: ops.LinearOperatorCirculant(tf.complex(d, d)),
    "circulant 2d": lambda x, d: ops.LinearOperatorCirculant2D(tf.complex(x, x)),
    "adjoint": lambda x, d: ops.LinearOperatorAdjoint(ops.LinearOperatorFullMatrix(x)),
    "inversion": lambda x, d: ops.LinearOperatorInversion(ops.LinearOperatorDiag(d)),
    "permutation": lambda x, d: ops.LinearOperatorPermutation(
        tf.argsort(d), dtype=tf.float32
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKED)
def test_operators_as_elements_and_as_results(name):
    body = STACKED[name]
    want = tf.stack([body(*row).to_dense() for row in zip(X, D)])
    made = tf_pfor.vectorized_map(lambda e: body(*e), (X, D), fallback_to_while_loop=False)
    np.testing.assert_allclose(made.to_dense(), want, rtol=1e-4, atol=1e-5)
    found = tf_pfor.vectorized_map(lambda op: op.to_dense(), body(X, D))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


class Held(tf.experimental.BatchableExtensionType):
    """Fields of all kinds, one of them of another type."""

    words: tf.RaggedTensor
    weight: tf.Tensor
    near: tf.SparseTensor
    inner: Scaled


class Dense(tf.experimental.ExtensionType):
    """A type that has tensors only."""

    x: tf.Tensor


class Outer(tf.experimental.BatchableExtensionType):
    """A type of types."""

    dense: Dense
    op: typing.Optional[ops.LinearOperator] = None  # noqa: UP045  (TensorFlow reads the type)


class Plain(tf.experimental.ExtensionType):
    """A type that says nothing about batches."""

    words: tf.RaggedTensor
    name: str
    by_name: typing.Mapping[str, tf.SparseTensor]


RAGGED = tf.RaggedTensor.from_row_lengths(tf.range(6.0), [2, 0, 3, 1])
DEEP = tf.RaggedTensor.from_row_lengths(RAGGED, [1, 0, 2, 1])
SPARSE = tf.sparse.from_dense(tf.where(D > 0, D, tf.zeros_like(D)))
HELD = {
    "batchable": lambda words: Held(words, D[:, 0], SPARSE, Scaled(D, D[:, :1])),
    "plain": lambda words: Plain(words, "name", {"near": SPARSE}),
}


def _leaves(x):
    """The fields of one row, dense."""
    if isinstance(x, Held):
        return [x.words, x.weight, tf.sparse.to_dense(x.near), x.inner.loc, x.inner.scale]
    return [x.words, tf.sparse.to_dense(x.by_name["near"])]


@pytest.mark.parametrize("words", [RAGGED, DEEP], ids=["ragged", "deep"])
@grid(way=sorted(set(WAYS) - {"compiled"}), name=HELD)
def test_fields_that_are_composites(way, name, words):
    """Fields of an element are rows; rows of a result are stacked."""
    batch = HELD[name](words)
    rows = [[field[i] for field in _leaves(batch)] for i in range(4)]
    total = lambda row: tf.add_n([tf.reduce_sum(field) for field in _leaves(row)])
    for _ in range(2):  # the second time by the kept trace
        found = WAYS[way](total, batch)
        want = [sum(float(tf.reduce_sum(field)) for field in row) for row in rows]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
        made = WAYS[way](lambda row: row, batch)
        assert type(made) is type(batch)
        assert isinstance(made.words, tf.RaggedTensor)
        for i, row in enumerate(rows):
            for field, expected in zip(_leaves(made), row, strict=True):
                is_ragged = isinstance(expected, tf.RaggedTensor)
                if is_ragged:
                    assert field[i].to_list() == expected.to_list()
                else:
                    np.testing.assert_allclose(field[i], expected)


def test_composite_fields_that_all_rows_share():
    batch = HELD["plain"](RAGGED)
    found = tf_pfor.vmap(
        lambda held, d: tf.reduce_sum(held.words.to_tensor()) * tf.reduce_sum(d), in_axes=(None, 0)
    )(batch, D)
    np.testing.assert_allclose(found, 15.0 * tf.reduce_sum(D, 1), rtol=1e-5)
    with pytest.raises(tf_pfor.ArgumentError, match="A Plain among the arguments.*Expected: 0"):
        tf_pfor.vmap(lambda held: held.words, in_axes=1)(batch)
    with pytest.raises(tf_pfor.ArgumentError, match="axis of a Plain that the body.*Expected: 0"):
        tf_pfor.vmap(lambda held: held, out_axes=1)(batch)


def test_types_in_types():
    """One that has tensors only is mapped over any axis; an operator in another is checked."""
    outer = Outer(Dense(D))
    np.testing.assert_allclose(tf_pfor.vectorized_map(lambda o: o.dense.x + 1, outer), D + 1)
    turned = tf_pfor.vmap(lambda o: o, in_axes=1)(outer)
    np.testing.assert_allclose(turned.dense.x, tf.transpose(D))
    made = tf_pfor.vectorized_map(
        lambda o: Outer(o.dense, ops.LinearOperatorDiag(o.dense.x)), outer
    )
    np.testing.assert_allclose(made.op.to_dense(), tf.linalg.diag(D))
    found = tf_pfor.vectorized_map(lambda o: o.op.matvec(o.dense.x), made)
    np.testing.assert_allclose(found, D * D, rtol=1e-6)
    with pytest.raises(tf_pfor.ArgumentError, match="A LinearOperatorIdentity among the elements"):
        tf_pfor.vectorized_map(
            lambda o: o.op.diag_part(), Outer(Dense(D), ops.LinearOperatorIdentity(3, [4]))
        )
