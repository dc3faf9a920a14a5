"""Sequence examples that are parsed in a body, against a Python loop over rows."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.parsing.rows import EXACT, WAYS, floats, ints, text
from tests.ways import errors_of, table_of

Fixed, Var, Ragged = tf.io.FixedLenFeature, tf.io.VarLenFeature, tf.io.RaggedFeature
Steps = tf.io.FixedLenSequenceFeature


def example(i):
    steps = (2, 0, 3, 1)[i % 4]
    context = {"label": ints(i), "ids": ints(*range(i % 3)), "name": text(b"row %d" % i)}
    lists = {
        "xs": [floats(k + 0.5, -k) for k in range(steps)],
        "words": [text(*[b"%d.%d" % (k, j) for j in range((k + i) % 3)]) for k in range(steps)],
        "codes": [text(b"a%d" % k) for k in range(steps)],
    }
    if i % 2:
        lists["some"] = [ints(7, k) for k in range(i)]
    made = {k: tf.train.FeatureList(feature=v) for k, v in lists.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context),
        feature_lists=tf.train.FeatureLists(feature_list=made),
    ).SerializeToString()


EXAMPLES = tf.constant([example(i) for i in range(6)])


def parsed(s, context=None, **lists):
    return tf.io.parse_single_sequence_example(s, context, lists)


def mean_of_steps(s):
    context, lists = parsed(s, {"label": Fixed([], tf.int64)}, xs=Steps([2], tf.float32))
    return tf.reduce_sum(lists["xs"], 0) * tf.cast(context["label"], tf.float32)


def with_lengths(s):
    context, lists, lengths = tf.io.parse_sequence_example(
        s[None], {"label": Fixed([], tf.int64)}, {"xs": Steps([2], tf.float32)}
    )
    return context["label"][0], lists["xs"], lengths["xs"]


def version_1(s):
    return tuple(
        tf.nest.flatten(
            tf.raw_ops.ParseSingleSequenceExample(
                serialized=s, feature_list_dense_missing_assumed_empty=["some"],
                context_sparse_keys=["ids"], context_dense_keys=["label"],
                feature_list_sparse_keys=["words"], feature_list_dense_keys=["some", "xs"],
                context_dense_defaults=[tf.constant([], tf.int64)], debug_name="",
                context_sparse_types=[tf.int64], feature_list_dense_types=[tf.int64, tf.float32],
                context_dense_shapes=[[]], feature_list_sparse_types=[tf.string],
                feature_list_dense_shapes=[[2], [2]],
            )
        )
    )  # fmt: skip


BODIES = {
    "steps": lambda s: parsed(s, {"label": Fixed([], tf.int64)}, xs=Steps([2], tf.float32)),
    "steps of text": lambda s: parsed(s, codes=Steps([], tf.string))[1]["codes"],
    "steps, computed with": mean_of_steps,
    "missing": lambda s: parsed(s, some=Steps([2], tf.int64, allow_missing=True))[1]["some"],
    "sparse": lambda s: parsed(s, {"ids": Var(tf.int64)}, words=Var(tf.string)),
    "sparse, missing": lambda s: parsed(s, {"none": Var(tf.int64)}, none=Var(tf.int64)),
    "made dense": lambda s: tf.sparse.to_dense(parsed(s, words=Var(tf.string))[1]["words"], "-"),
    "ragged": lambda s: parsed(s, {"ids": Ragged(tf.int64)}, words=Ragged(tf.string)),
    "ragged, int64 splits": lambda s: parsed(
        s, some=Ragged(tf.int64, row_splits_dtype=tf.int64))[1]["some"],
    "all kinds": lambda s: parsed(
        s, {"label": Fixed([], tf.int64), "ids": Var(tf.int64), "name": Ragged(tf.string)},
        xs=Steps([2], tf.float32), words=Var(tf.string), some=Ragged(tf.int64)),
    "context only": lambda s: parsed(s, {"label": Fixed([], tf.int64, 3)})[0],
    "version 1": version_1,
}  # fmt: skip
WEIGHTS = tf.Variable([[1.0, 2.0], [0.5, -1.0]])


def layer(s):
    return tf.reduce_sum(tf.tanh(parsed(s, xs=Steps([2], tf.float32))[1]["xs"] @ WEIGHTS))


def splits(s):
    """The splits of a row's steps, as the op returns them: they begin at zero in each row."""
    words = parsed(s, words=Ragged(tf.string))[1]["words"]
    return words.values, words.row_splits


test_table_of_sequences = table_of(
    {**BODIES, "splits": splits, "layer": layer}, EXAMPLES, ways=[*WAYS, "around"],
    only={"around": ["layer"]}, but=dict.fromkeys(WAYS, ["layer"]), by=(WEIGHTS,),
    tolerance=EXACT, slopes=(1e-5, 1e-5),
)  # fmt: skip
test_errors = errors_of(
    {
        "missing list": (lambda s: parsed(s, some=Steps([2], tf.int64))[1], EXAMPLES, "some"),
        "another type": lambda s: parsed(s, xs=Ragged(tf.int64))[1],
    },
    EXAMPLES,
)


def test_vectors_loop():
    """A vector of examples in each row runs in a loop, which the warning says."""
    texts = EXAMPLES[:, None]
    with pytest.warns(tf_pfor.FallbackWarning, match="a vector of examples"):
        found = tf_pfor.vectorized_map(lambda s: with_lengths(s[0])[2], texts)
    assert found.numpy().tolist() == [[2], [0], [3], [1], [2], [0]]
