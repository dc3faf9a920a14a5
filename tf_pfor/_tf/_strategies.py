"""Variables of ``tf.distribute`` strategies: one copy on each replica.

TensorFlow's classes for them are private, and so is the replica whose copy is meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, distribute_utils, values


def is_default(strategy: tf.distribute.Strategy) -> bool:
    """True for the strategy of programs that chose none."""
    return strategy is distribute_lib._get_default_strategy()


def joined(parts: Sequence[object]) -> object:
    """One object of the values of all replicas, as ``strategy.run`` returns it."""
    return cast(object, distribute_utils.regroup(tuple(parts)))


@contextlib.contextmanager
def first_copies() -> Generator[None]:
    """In the block, the graph being built reads and changes the copies of the first replica only.

    A ``tf.function`` that was traced elsewhere is traced again here, and the reverse: elsewhere it
    changes all copies. TensorFlow compares functions of devices, so there is one that does nothing.
    """
    graph = tf.compat.v1.get_default_graph()
    with graph.device(_anywhere), distribute_lib.UpdateContext(0):
        yield


def _anywhere(_: tf.Operation) -> str:
    return ""


def in_one_replica() -> bool:
    """Whether the code that runs is of one replica: in ``strategy.run`` or ``first_copies``."""
    if distribute_lib.get_update_replica_id() is not None:
        return True
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


def copies(handle: tf.Tensor) -> tuple[tf.Variable, ...]:
    """The copies on all replicas of this machine of the variable behind a handle, if it has any."""
    whole = _whole(handle)
    return () if whole is None else tuple(whole.values)


def is_first_copy(handle: tf.Tensor) -> bool:
    """Whether the variable behind a handle is the first copy of several."""
    return any(handle is first.handle for first in copies(handle)[:1])


def is_summed_when_read(handle: tf.Tensor) -> bool:
    """Whether a handle is of a copy of a variable whose value is made of all copies."""
    return isinstance(_whole(handle), values.SyncOnReadVariable)


def name_of(handle: tf.Tensor) -> str:
    """The name of the variable behind a handle."""
    return str(getattr(handle, "_name", "")) or handle.name


def _whole(handle: tf.Tensor) -> Any:
    holder = getattr(handle, "_distributed_container", None)
    return None if holder is None else holder()
