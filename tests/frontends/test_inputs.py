"""Inputs of one example: specs from text, values, variable-length rows."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.frontends import functions
from tf_pfor.frontends import inputs


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "kind"),
    [
        ("float32[None,3]", [None, 3], tf.float32, "row"),
        ("int32[8]", [8], tf.int32, "row"),
        ("string", [], tf.string, "row"),
        ("bfloat16[]", [], tf.bfloat16, "row"),
        (" shared:bool[2, 2] ", [2, 2], tf.bool, "shared"),
        ("ragged:uint8[None, None, 3]", [None, None, 3], tf.uint8, "ragged"),
    ],
)
def test_parse(text, shape, dtype, kind):
    found = inputs.parse(text)
    assert (found.spec.shape.as_list(), found.spec.dtype, found.kind) == (shape, dtype, kind)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("float33[2]", "no dtype 'float33'"),
        ("float32[2", "not of this form"),
        ("float32[a]", "'a' is neither a size nor None"),
        ("float32[-1]", "'-1' is neither"),
        ("many:float32[2]", "not of this form"),
        ("", "not of this form"),
        ("ragged:float32[2]", "said to be ragged"),
    ],
)
def test_what_cannot_be_read(text, says):
    with pytest.raises(tf_pfor.ArgumentError, match=says):
        inputs.parse(text)


def test_what_stands_for_it_in_a_batch():
    def specs(text):
        return [(t.shape.as_list(), t.dtype, t.name) for t in inputs.parse(text, "x").batched(None)]

    assert specs("int32[8]") == [([None, 8], tf.int32, "x")]
    assert specs("shared:int32[8]") == [([8], tf.int32, "x")]
    assert specs("ragged:int32[None]") == [
        ([None, None], tf.int32, "x"), ([None], tf.int64, "x_lengths"),
    ]  # fmt: skip
    assert specs("ragged:int32[None,2,None]")[1] == ([None, 2], tf.int64, "x_lengths")


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "bool", "string", "complex64"])
def test_values(dtype):
    given = [inputs.parse(f"{kind}:{dtype}[2,None]") for kind in ("row", "shared", "ragged")]
    row, shared, ragged, sizes = inputs.made(given, 3)
    assert (row.shape, shared.shape, ragged.shape) == ((3, 2, 4), (2, 4), (3, 2, 4))
    assert {tf.as_dtype(x.dtype) for x in (row, shared, ragged)} == {tf.as_dtype(dtype)}
    assert sizes.shape == (3,)
    empty = b"" if dtype == "string" else 0
    for values, size in zip(ragged, sizes):
        assert (values[:, size:] == empty).all()
    again = inputs.made(given, 3)
    assert all((a == b).all() for a, b in zip(again, [row, shared, ragged, sizes]))


def test_ragged_rows_are_cut():
    given = [inputs.parse("ragged:float32[None,2,None]"), inputs.parse("shared:float32[]")]
    seen = []
    fn = inputs.of_flat(lambda x, y: seen.append((x, y)) or x, given)
    fn(tf.ones([4, 2, 4]), tf.constant([3, 1], tf.int64), tf.constant(2.0))
    assert seen[0][0].shape == [3, 2, 1]
    assert seen[0][1].numpy() == 2.0
    assert inputs.in_axes(given) == (0, 0, None)


def test_explained_with_shared_and_unknown_n():
    given = [inputs.parse("float32[3]"), inputs.parse("shared:float32[3]")]
    report = inputs.explained(lambda x, y: (x * y, tf.tanh(y)), given)
    outcomes = {r.op_type: r.outcome.value for r in report.records}
    assert outcomes == {"Mul": "vectorized", "Tanh": "kept"}
    assert report.n is None
    with pytest.raises(tf_pfor.ArgumentError, match="nothing to map over"):
        inputs.explained(functions.product, [given[1], given[1]])


def test_explained_converts_python_control_flow():
    report = inputs.explained(functions.grows, [inputs.parse("float32")], 5)
    assert report.name == "grows"
    assert any("While" in r.op_type for r in report.records)


def test_made_values_need_a_rank():
    given = inputs.Input("x", tf.TensorSpec(None, tf.float32))
    with pytest.raises(tf_pfor.ArgumentError, match="unknown rank"):
        inputs.made([given], 2)
    assert np.shape(inputs.made([inputs.parse("int32")], 0)[0]) == (0,)
