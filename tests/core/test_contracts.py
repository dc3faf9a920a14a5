"""Each clause of the contracts catches a value that breaks it, and tests do check them."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor.core.errors import ConversionError
from tf_pfor.core.pending import (
    Packed,
    Piece,
    Product,
    Products,
    Reshaped,
    SumOfProducts,
    ZeroExtended,
)
from tf_pfor.core.stacked_lists import ListRows, StackedList
from tf_pfor.core.values import Cell, Folded, RowSource, Stacked, Unstacked, Value
from tf_pfor.layouts.csr_rows import CsrRows
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.repeated import RepeatedList
from tf_pfor.layouts.row_major import Items, RowMajorList
from tf_pfor.walker import contracts
from tf_pfor.walker.contracts import CONTRACTS, Place

N = 3
ROWS = tf.zeros([N, 2, 4])
LIST = tf.raw_ops.TensorListFromTensor(tensor=tf.zeros([5, N]), element_shape=[N])
IDS = tf.range(N)
OTHER = tf.Graph()
with OTHER.as_default():
    ELSEWHERE = tf.zeros([N, 2, 4])


def stacked(cls=Stacked, shape=(2, 4), tensor=ROWS, dtype=tf.float32, **fields):
    return cls(Cell(tensor), shape, dtype, **fields)


def rows(**fields):
    return StackedList.of(LIST, ListRows(**{"size": N, **fields}))


def products(k):
    a, b = Value.stacked(tf.zeros([N, k, 2])), Value.stacked(tf.zeros([N, 2, 4]))
    return Products((Product(a, b, False, False),), ())


SIZES, FLAT = tf.constant([2, 0, 1]), tf.zeros([3, 4])
PIECE = Value.stacked(tf.zeros([N, 4]))
GOOD = [
    Value.unstacked(tf.zeros([2])),
    Unstacked(Cell(tf.zeros([2])), (2,), tf.float32, np.zeros(2, np.float32)),
    stacked(),
    stacked(shape=None),
    stacked(folded=Folded(tf.zeros([N * 2, 4]), 1)),
    stacked(source=RowSource(Cell(tf.zeros([7, 2, 4])), Cell(IDS))),
    stacked(Reshaped, elements=tf.zeros([N * 8])),
    stacked(SumOfProducts, products=products(2)),
    stacked(Packed, parts=(tf.zeros([N, 4]), tf.zeros([N, 4]))),
    stacked(ZeroExtended, piece=Piece(PIECE, 1, 1)),
    StackedList.of(LIST),
    rows(ids=IDS, mask=tf.ones([N], tf.bool), lengths=IDS, starts=IDS),
    RowMajorList(Cell(LIST), (5,), tf.float32, ListRows(N), Items(tf.float32, (), 5)),
    Ragged.packed(FLAT, [1, RowSizes.of(SIZES)]),
    Ragged.from_padded(ROWS, [RowSizes.of(SIZES)]),
    RepeatedList.of(Value.unstacked(ROWS), Value.unstacked(tf.constant(4))),
]
BROKEN = {
    "sizes that are not negative": stacked(shape=(-1, 4), tensor=None),
    "its tensors are of the graph": stacked(tensor=ELSEWHERE),
    "Unstacked: its tensor has its dtype": Unstacked(Cell(ROWS), (N, 2, 4), tf.int32),
    "its tensor has the inner shape": Unstacked(Cell(ROWS), (2, 4), tf.float32),
    "what is known of it": Unstacked(Cell(None), (2,), tf.float32, np.zeros(3, np.float32)),
    "Stacked: its tensor has its dtype": stacked(dtype=tf.float64),
    "its tensor is [n] and the inner shape": stacked(shape=(4, 2)),
    "its folded form": stacked(folded=Folded(tf.zeros([N * 4, 2]), 1)),
    "its rows come from": stacked(source=RowSource(Cell(tf.zeros([7, 4])), Cell(IDS))),
    "has as many elements": stacked(Reshaped, elements=tf.zeros([N * 7])),
    "each product": stacked(SumOfProducts, products=products(3)),
    "there is a part": stacked(Packed, parts=(tf.zeros([N, 4]),)),
    "the piece": stacked(ZeroExtended, piece=Piece(PIECE, 2, 1)),
    "its sizes are of its first axes": Ragged.packed(FLAT, [RowSizes.of(SIZES), 2]),
    "a size that differs is int32 [n]": Ragged.packed(FLAT, [RowSizes.of(tf.range(N + 1))]),
    "its tensor has the elements of all rows": Ragged.packed(
        FLAT, [RowSizes.of(SIZES)]
    ).with_inner_shape((None, 3)),
    "its padded form is": Ragged.from_padded(
        tf.zeros([N, 3, 2]), [RowSizes.of(SIZES)]
    ).with_inner_shape((None,)),
    "StackedList: its tensor has its dtype": StackedList(Cell(ROWS), (), tf.variant),
    "it has the inner shape, of handles": StackedList(Cell(LIST), (2,), tf.variant),
    "the size of its elements": rows(size=-1),
    "the ids of its rows": rows(ids=tf.range(N + 1)),
    "its mask": rows(mask=IDS),
    "its lengths and its starts": rows(lengths=tf.range(N + 1)),
    "it is the handle of one list": RowMajorList(
        Cell(ROWS), (5,), tf.float32, ListRows(N), Items(tf.float32, (), 5)
    ),
    "each row has the same number": RowMajorList(
        Cell(LIST), (5,), tf.float32, ListRows(N), Items(tf.float32, (), -5)
    ),
    "the item is loop-invariant": RepeatedList.of(stacked(), Value.unstacked(tf.constant(4))),
    "it is the handle of one batch": CsrRows(Cell(tf.zeros([N])), (), tf.variant),
}


@pytest.mark.parametrize("k", range(len(GOOD)))
def test_values_that_keep_it(k):
    contracts.check(GOOD[k], Place(tf.Graph(), N), "x")


@pytest.mark.parametrize("promise", BROKEN)
def test_values_that_break_it(promise):
    with pytest.raises(ConversionError) as caught:
        contracts.check(BROKEN[promise], Place(tf.Graph(), N), "'x'")
    assert promise in str(caught.value)
    assert str(caught.value).startswith("'x': ")


def test_each_clause_is_broken_by_one_of_these():
    promises = [c.promise for clauses in CONTRACTS.values() for c in clauses]
    for promise in promises:
        assert any(p.rpartition(": ")[2] in promise for p in BROKEN), promise


def test_in_tests_what_a_converter_returns_is_checked(monkeypatch):
    assert contracts.ARE_CHECKED
    never = contracts.Clause("never", lambda value, place: False)
    monkeypatch.setitem(CONTRACTS, Stacked, (never,))
    with pytest.raises(ConversionError, match="breaks the contract of Stacked: never"):
        tf_pfor.vectorized_map(tf.sin, tf.zeros([3]))
