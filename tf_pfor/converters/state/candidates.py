"""Candidate samplers: classes drawn in each iteration for itself, with how often they are expected.

Without repetition a sampler draws until it has enough classes that differ, and counts its tries.
All rows draw a batch of tries at once, and more where one of them has not yet enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.emit import seeds
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.values import Value

_SIZES = "num_true num_sampled unique seed seed2"


class _Law:
    """A distribution over classes: draws of uniform numbers [0, 1), and the chance of a class."""

    def __init__(self, classes: int, draw: Callable[[Any], Any], chance: Callable[[Any], Any]):
        self.classes, self.draw, self.chance = classes, draw, chance


@RegisterPFor("AllCandidateSampler", ALWAYS, attrs=_SIZES)
def all_classes(call: Call, true_classes: Value) -> Any:
    """Every class once: the same in all iterations."""
    count = call.attr("num_sampled")
    emit = call.emit
    sampled = emit("Range", np.int64(0), np.int64(count), np.int64(1))
    often = emit("Fill", np.asarray([count], np.int32), np.float32(1))
    true = emit("Cast", emit("OnesLike", true_classes.tensor), DstT=tf.float32)
    counts = Value.stacked(true) if true_classes.is_stacked else Value.unstacked(true)
    return [Value.unstacked(sampled), counts, Value.unstacked(often)]


@RegisterPFor(
    "FixedUnigramCandidateSampler",
    ALWAYS,
    attrs=f"{_SIZES} range_max vocab_file distortion num_reserved_ids num_shards shard unigrams",
)
@RegisterPFor(
    "LogUniformCandidateSampler UniformCandidateSampler", ALWAYS, attrs=f"{_SIZES} range_max"
)
def sample(call: Call, true_classes: Value) -> Any:
    """[n, sampled] classes, with the expected counts of those and of the true ones."""
    if _tf.in_body(call.emit.graph):
        raise CannotVectorize("how many tries are needed, in the body of another map")
    law = _LAWS[call.op_type](call)
    count, n = call.attr("num_sampled"), call.loop.length
    if call.attr("unique") and count > law.classes:
        raise CannotVectorize("it samples more classes than there are, without repetition")
    with call.emit.as_default():
        if call.attr("unique"):
            sampled, tries = _distinct(call, law, count)
        else:
            sampled, tries = law.draw(_uniform(call, tf.stack([n, count]))), None
        sampled.set_shape([call.loop.static_length, count])
        rows = call.stacked(true_classes)
        made = [sampled, _expected(law, rows, tries, count), _expected(law, sampled, tries, count)]
    return made


def _expected(law: _Law, classes: tf.Tensor, tries: tf.Tensor | None, count: int) -> tf.Tensor:
    """The expected counts of classes [n, ...]: 1 - (1 - p)^tries, or p times the draws."""
    chance = law.chance(classes)
    often = chance * count
    if tries is not None:
        tries = tf.reshape(tries, [-1, *[1] * (len(classes.shape) - 1)])
        distinct = -tf.math.expm1(tf.cast(tries, tf.float64) * tf.math.log1p(-chance))
        often = tf.where(tries == count, often, distinct)
    return tf.cast(often, tf.float32)


def _uniform(call: Call, shape: tf.Tensor, draw: int = 0) -> tf.Tensor:
    own = seeds(call.attr("seed"), call.attr("seed2"), draw)
    return tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float64, **own)


def _distinct(call: Call, law: _Law, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The first ``count`` classes that differ, int64 [n, count], and after how many tries, [n]."""
    n = call.loop.length

    def found(drawn: tf.Tensor) -> tf.Tensor:
        """int32 [n, tries]: how many classes have been seen after each try."""
        order = tf.argsort(drawn, 1, stable=True)
        ranked = tf.gather(drawn, order, batch_dims=1)
        is_new = tf.concat([ranked[:, :1] >= 0, ranked[:, 1:] != ranked[:, :-1]], 1)
        places = tf.argsort(order, 1)
        return tf.cumsum(tf.cast(tf.gather(is_new, places, batch_dims=1), tf.int32), 1)

    def more(drawn: tf.Tensor, seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        drawn = tf.concat([drawn, law.draw(_uniform(call, tf.shape(drawn), 1))], 1)
        return drawn, found(drawn)

    first = law.draw(_uniform(call, tf.stack([n, 2 * count])))
    wide = tf.TensorShape([first.shape[0], None])
    drawn, seen = tf.while_loop(
        lambda _, seen: tf.reduce_any(seen[:, -1] < count),
        more,
        (first, found(first)),
        shape_invariants=(wide, wide),
    )
    drawn, seen = tf.stop_gradient(drawn), tf.stop_gradient(seen)
    # a class is new where the number of those seen grows
    is_new = tf.concat([seen[:, :1] > 0, seen[:, 1:] > seen[:, :-1]], 1) & (seen <= count)
    behind = tf.shape(seen)[1]
    score = tf.where(is_new, behind - tf.range(behind)[None], 0)
    _, places = tf.math.top_k(score, count)
    tries = tf.reduce_sum(tf.cast(seen < count, tf.int32), 1) + 1
    return tf.gather(drawn, places, batch_dims=1), tries


# ---------------------------------------------------------------------------
# Laws
# ---------------------------------------------------------------------------


def _uniform_law(call: Call) -> _Law:
    classes = call.attr("range_max")

    def draw(u: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.floor(u * classes), tf.int64)

    return _Law(classes, draw, lambda ids: tf.fill(tf.shape(ids), np.float64(1 / classes)))


def _log_uniform_law(call: Call) -> _Law:
    classes = call.attr("range_max")
    span = float(np.log1p(classes))

    def draw(u: tf.Tensor) -> tf.Tensor:
        return tf.math.floormod(tf.cast(tf.exp(u * span), tf.int64) - 1, classes)

    def chance(ids: tf.Tensor) -> tf.Tensor:
        at = tf.cast(ids, tf.float64)
        return tf.math.log((at + 2.0) / (at + 1.0)) / span

    return _Law(classes, draw, chance)


def _unigram_law(call: Call) -> _Law:
    """By the frequencies given, each to the power of the distortion; reserved ids are not drawn."""
    given = call.attr("unigrams")
    if call.attr("vocab_file") or not given or call.attr("num_shards") != 1:
        raise CannotVectorize("the frequencies are in a file, or are of a shard of the classes")
    reserved = np.zeros([call.attr("num_reserved_ids")])
    powers = np.power(np.asarray(given, np.float32), np.float32(call.attr("distortion")))
    weights = np.concatenate([reserved, powers]).astype(np.float64)
    if len(weights) != call.attr("range_max") or not weights.sum() > 0:
        raise CannotVectorize("the frequencies are not as many as 'range_max' says")
    ends, chances = np.cumsum(weights) / weights.sum(), tf.constant(weights / weights.sum())
    last = int(np.nonzero(weights)[0][-1])

    def draw(u: tf.Tensor) -> tf.Tensor:
        found = tf.raw_ops.UpperBound(
            sorted_inputs=tf.constant(ends[None]), values=tf.reshape(u, [1, -1]), out_type=tf.int64
        )
        return tf.reshape(tf.minimum(found, last), tf.shape(u))

    return _Law(int(np.count_nonzero(weights)), draw, lambda ids: tf.gather(chances, ids))


_LAWS = {
    "FixedUnigramCandidateSampler": _unigram_law,
    "LogUniformCandidateSampler": _log_uniform_law,
    "UniformCandidateSampler": _uniform_law,
}
