"""Loops that push the same invariant tensor in each trip: lists that are a tensor and a count."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import assert_close, check, gradient_of, mapped, notes, vectorized
from tests.samples.lists.tensor_list import count, empty, get, pop, push, raw
from tests.samples.lists.tensor_list import stacked as stack_of
from tests.ways import table_of
from tf_pfor import vectorized_map, vmap

both = pytest.mark.parametrize("strategy", ["compact", "mask"])
NOTE = "of one invariant tensor"


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape) * 0.5


LENGTHS = np.asarray([2, 0, 4, 1, 3], np.int32)
X = normal(5, 3)
W = tf.Variable(normal(3, 3))
ONES = tf.Variable(np.ones([3]))


def as_read(s):
    return tf.tanh(tf.linalg.matvec(W, s)) * ONES


def computed(s):
    """The tensors that the gradient needs are computed from a variable in each trip."""
    scaled = tf.transpose(W) / tf.norm(W)
    return tf.tanh(tf.linalg.matvec(tf.sin(scaled), s))


def looped(cell, k, x, bound=None):
    loop = tf.while_loop(
        lambda t, s: t < k, lambda t, s: (t + 1, cell(s)), (0, x), maximum_iterations=bound
    )
    return tf.reduce_sum(loop[1] ** 2)


def gradient(loss, variables=(W, ONES)):
    def one(k, x):
        return gradient_of(lambda: loss(k, x), [x, *variables], unconnected_gradients="zero")

    return one


def tensors_in_loops(concrete):
    """The shapes of all tensors in the loops of a graph."""
    found, todo = [], [concrete.graph]
    while todo:
        for op in todo.pop().get_operations():
            for name in ("body", "cond"):
                if op.type in ("While", "StatelessWhile"):
                    inner = concrete.graph._get_function(op.get_attr(name).name).graph
                    todo.append(inner)
                    found += [t.shape for o in inner.get_operations() for t in o.outputs]
    return found


@pytest.mark.parametrize("cell", [as_read, computed])
def test_no_row_has_its_own_copy(cell):
    one = gradient(lambda k, x: looped(cell, k, x), [])
    mapped = tf.function(lambda *a: vectorized(one, a, while_strategy="compact"), autograph=False)
    shapes = tensors_in_loops(mapped.get_concrete_function(tf.constant(LENGTHS), tf.constant(X)))
    assert any(s == [3, 3] for s in shapes)
    assert not [s for s in shapes if s.rank == 3 and s[1:] == [3, 3]]


@both
def test_a_function_in_the_body(strategy):
    """Its forward function returns the lists, its backward function gets them."""
    one = gradient(tf.function(of_reads))
    check(one, LENGTHS, X, xla=False, grad=False, rtol=1e-9, while_strategy=strategy)
    if strategy == "compact":
        assert any(NOTE in note for note in notes(one, LENGTHS, X, while_strategy=strategy))


def nested_loops(k, x):
    def outer(t, s):
        inner = tf.while_loop(lambda u, r: u < k - t, lambda u, r: (u + 1, as_read(r)), (0, s))
        return t + 1, inner[1] + s

    return tf.reduce_sum(tf.while_loop(lambda t, s: t < 2, outer, (0, x))[1] ** 2)


def gradient_in_a_loop(k, x):
    """The gradient of an inner loop, in one trip of an outer one."""

    def outer(t, s):
        return t + 1, s + gradient(lambda k, x: looped(as_read, k, x), [W])(k, s)[0]

    return tf.while_loop(lambda t, s: t < k, outer, (0, x))[1]


def asked_later(k, x):
    """A gradient of a loop that only its backward function reads is there when it is asked."""
    w = tf.constant(normal(3, 3))

    @tf.custom_gradient
    def loss(x):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = looped(lambda s: tf.tanh(tf.linalg.matvec(w, s)), k, x)
        g, h = tape.gradient(y, [x, w], unconnected_gradients="zero")
        return y + tf.reduce_sum(h), lambda dy: 2.0 * dy * g

    return loss(x)


def second_gradient(k, x):
    """An item popped of such a list may be pushed to another list."""
    one = lambda: tf.reduce_sum(tf.sin(gradient(of_reads, [])(k, x)[0]))
    return gradient_of(one, [x, W], unconnected_gradients="zero")


def of_reads(k, x):
    return looped(as_read, k, x)


SLOPES = {
    f"{cell.__name__}, {lengths}": (
        gradient(lambda k, x, cell=cell: looped(cell, k, x)),
        (tf.constant(lengths), tf.constant(X)))
    for cell in (as_read, computed)
    for lengths in ([2, 0, 4, 1, 3], [0] * 5, [4] * 5)
}  # fmt: skip
OF_X = gradient(of_reads, [W])
STRATEGIES = ("function, compact", "function, mask")
FEW = [f"{place}{way}" for way in ("compact", "mask") for place in (
    "function, no rows, ", "function, one row, ", "unknown n, ")]  # fmt: skip
AROUND = [f"{way}, around" for way in STRATEGIES]
test_table_of_slopes = table_of(
    {
        **SLOPES,
        "of reads": OF_X,
        "bounded": gradient(lambda k, x: looped(as_read, k, x, bound=4)),
        "nested_loops": nested_loops,
        "gradient_in_a_loop": gradient_in_a_loop,
        "asked_later": asked_later,
        "second_gradient": second_gradient,
    },
    tf.constant(LENGTHS), tf.constant(X), ways=[*STRATEGIES, *FEW, "compiled", *AROUND],
    only={
        **dict.fromkeys(FEW, ["of reads"]),
        "compiled": ["bounded"],
        **dict.fromkeys(AROUND, ["of reads", "nested_loops", "asked_later"]),
    },
    by=(W, ONES), tolerance=(1e-9, 1e-9), slopes=(1e-8, 1e-8),
)  # fmt: skip


# -- lists that users make -------------------------------------------------------------------------


ITEM = [3], tf.float64


def pushed(k, limit=-1):
    """A list to which k trips push the same."""
    empty = raw.EmptyTensorList(element_shape=[3], max_num_elements=limit, element_dtype=tf.float64)
    step = lambda t, h: (t + 1, push(h, ONES * 2.0))
    return tf.while_loop(lambda t, h: t < k, step, (0, empty))[1]


def length(k, x):
    return count(pushed(k))


def popped(k, x):
    handle, item = pop(pushed(k + 1), *ITEM)
    return count(handle), item + x


def pushed_after(k, x):
    handle, a = pop(push(pushed(k), x), *ITEM)
    return a, count(handle)


def read(k, x):
    return x + get(pushed(k + 1), k, *ITEM)


def stacked(k, x):
    return count(raw.TensorListResize(input_handle=pushed(k), size=4))


def in_a_branch(k, x):
    handle = pushed(k + 1)
    return tf.cond(x[0] > 0, lambda: pop(handle, *ITEM)[1] + x, lambda: x)


def popped_in_a_loop(k, x):
    """A loop that pops and looks at the list in another way too."""

    def body(t, s, h):
        size = tf.cast(count(h), tf.float64)
        h, item = pop(h, *ITEM)
        return t + 1, s + item * size, h

    _, s, h = tf.while_loop(lambda t, *_: t < k // 2, body, (0, x, pushed(k)))
    return s, count(h)


def pushed_in_a_second_loop(k, x):
    step = lambda t, h: (t + 1, push(h, x))
    _, h = tf.while_loop(lambda t, h: t < k, step, (0, pushed(k)))
    return pop(push(h, x * 2.0), *ITEM)[1], count(h)


def of_a_list(k, x):
    """The last element of a list that holds such a list."""
    scalar = tf.constant([], tf.int32)
    lists = raw.EmptyTensorList(element_shape=scalar, max_num_elements=1, element_dtype=tf.variant)
    _, inner = pop(push(lists, pushed(3)), [], tf.variant)
    return stack_of(inner, tf.float64, [3]) + x


LISTS = (
    length, popped, pushed_after, read, stacked, in_a_branch, popped_in_a_loop,
    pushed_in_a_second_loop, of_a_list,
)  # fmt: skip
test_table_of_lists = table_of(
    LISTS, tf.constant(LENGTHS), tf.constant(X), ways=STRATEGIES, tolerance=(1e-9, 1e-9)
)


def test_a_list_without_room():
    """A push that fails must fail."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_num_elements"):
        vmap(lambda k: count(pushed(k, limit=2)))(LENGTHS)


def test_uniform_items_of_keras_layers():
    """A layer over the true length of each example."""
    layer = tf.keras.layers.Dense(3, activation="tanh", dtype="float64")
    layer.build([None, 3])
    variables = [v.value for v in layer.trainable_variables]
    one = gradient(lambda k, x: looped(lambda s: layer(s[None])[0], k, x), variables)
    found = vectorized_map(lambda a: one(*a), (LENGTHS, X))
    for i, (k, x) in enumerate(zip(LENGTHS, X)):
        for f, e in zip(found, one(k, tf.constant(x))):
            np.testing.assert_allclose(f[i], e, rtol=1e-9, atol=1e-12)


@both
def test_all_four_loops_of_a_second_gradient(strategy):
    found = notes(second_gradient, LENGTHS, X, while_strategy=strategy)
    assert sum(NOTE in note for note in found) == 4


def test_list_of_own_length_is_stacked():
    """An op that needs all items gets as many as the row has pushed."""
    w = tf.constant([1.0, -2.0, 4.0], tf.float64)

    def body(k):
        step = lambda t, made: (t + 1, push(made, w))
        _, handle = tf.while_loop(lambda t, _: t < k, step, (0, empty(*ITEM)))
        return tf.reduce_sum(stack_of(handle, tf.float64, [3]), 0)

    assert_close(vectorized_map(body, tf.constant(LENGTHS)), LENGTHS[:, None] * w.numpy())


def test_pushes_behind_the_end_of_each_row():
    """A list that differs in length between rows ends with what was pushed to it last."""
    k, x = tf.constant(LENGTHS), tf.constant(X)
    made, lengths = mapped(pushed_after, k, x, while_strategy="mask")
    np.testing.assert_array_equal(made, X)
    np.testing.assert_array_equal(lengths, LENGTHS)  # without the last one again


def test_a_list_that_was_popped_is_shorter():
    lengths, items = vmap(popped)(LENGTHS, X)
    np.testing.assert_array_equal(lengths, LENGTHS)
    np.testing.assert_allclose(items, X + 2.0)
