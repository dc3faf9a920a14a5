"""Samples of tf_pfor/converters/state/variables.py: that it converts everywhere; test_state.py has
what becomes of the state."""

import tensorflow as tf

from tests.sample import ints, normal, sample

r = tf.raw_ops
FLOATS = tf.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [0.0, 1.0, 0.0]])
TARGET = tf.Variable(tf.zeros([2, 3]))
HALF = tf.Variable(tf.zeros([3], tf.half))
COUNT = tf.Variable(0, dtype=tf.int64)
ROWS = tf.Variable(tf.zeros([4, 3]))
STATE = tf.Variable(tf.zeros([3]))


def _add(x):
    r.AssignAddVariableOp(resource=TARGET.handle, value=x)
    return x * 2.0


def _sub(x):
    r.AssignSubVariableOp(resource=TARGET.handle, value=x)
    return x * 2.0


def _half(x):
    r.AssignAddVariableOp(resource=HALF.handle, value=x)
    return x


def _count(x):
    COUNT.assign_add(2)
    return x + 1.0


def _assign(x):
    r.AssignVariableOp(resource=STATE.handle, value=[1.0, 2.0, 3.0])
    return x + STATE


def _own_value(x):
    """The value that is read does not depend on how often the body ran before."""
    old = STATE.read_value()
    STATE.assign(old * 0.0 + [1.0, 2.0, 3.0])
    return x + 0.0 * old


def _shape(x):
    return x * tf.cast(r.VariableShape(input=FLOATS.handle)[0], tf.float32)


def _made(x):
    handle = r.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="tf_pfor_sample")
    r.AssignVariableOp(resource=handle, value=[1.0, 2.0, 3.0])
    return x + tf.cast(r.VarIsInitializedOp(resource=FLOATS.handle), tf.float32)


def _destroyed(x):
    handle = r.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="tf_pfor_never_made")
    r.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
    return x + 1.0


def _slice(x):
    ROWS[1].assign([1.0, 2.0, 3.0])
    return x + 1.0


SAMPLES = [
    sample("AssignAddVariableOp", _add, normal(2, 3)),
    sample("AssignAddVariableOp", _half, normal(3, dtype="float16"), label="half", xla=False),
    sample("AssignAddVariableOp", _count, normal(3), label="invariant"),
    sample("AssignSubVariableOp", _sub, normal(2, 3)),
    sample("AssignVariableOp", _assign, normal(3), unknown=False),
    # Its unknown n is in test_state.py: the guard of a loop without iterations is a conditional.
    sample("AssignVariableOp", _own_value, normal(3), label="own-value", grad=False, max_ops=40),
    # XLA does not let go of variables.
    sample("DestroyResourceOp", _destroyed, normal(3), xla=False),
    sample("ReadVariableOp", lambda x: x @ FLOATS, normal(2, 4)),
    sample("ResourceGather", lambda i: FLOATS.sparse_read(i), ints(2, high=4), grad=False),
    sample("ResourceGather", lambda i: FLOATS.sparse_read(i), ints(high=4), label="scalar"),
    sample(
        "ResourceGather",
        lambda i: r.ResourceGather(
            resource=FLOATS.handle, indices=i, dtype=tf.float32, batch_dims=1
        ),
        ints(4, 2, high=3),
        label="batch",
        xla=False,  # XLA gathers from a variable without batch dimensions only
    ),
    # XLA does not compile it.
    sample("ResourceGatherNd", lambda i: FLOATS.gather_nd(i), ints(2, 2, high=3), xla=False),
    sample("ResourceGatherNd", lambda i: FLOATS.gather_nd(i), ints(1, high=3), label="row",
        xla=False),
    sample("ResourceStridedSliceAssign", _slice, normal(3), unknown=False),
    # Making a variable is nothing that XLA compiles.
    sample("VarHandleOp", _made, normal(3), xla=False, unknown=False),
    sample("VarIsInitializedOp", _made, normal(3), xla=False, label="asked", unknown=False),
    sample("VariableShape", _shape, normal(3)),
]  # fmt: skip
