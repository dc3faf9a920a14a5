"""Errors of a dataset of batches that name the element: its place, the op and the line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import PforError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.data._choice import check_stateless
from tf_pfor.frontends.data._failures import Failure, find_failure, with_text

Find = Callable[[int], Failure | None]
"""From the number of a batch to the first of its elements for which the function fails."""


def located(
    made: tf.data.Dataset[Any],
    fn: Callable[..., Any],
    elements: tf.data.Dataset[Any],
    size: Dim,
) -> tf.data.Dataset[Any]:
    """The dataset ``made``; where a batch fails, ``fn`` tries the elements of the batch.

    A Python loop over the dataset does so, also behind ``prefetch`` and ``with_options``. Other
    transformations of it, and loops in a graph (``Model.fit``), raise TensorFlow's error;
    ``find_failure`` is for them.
    """
    if not tf.executing_eagerly():
        return made

    def find(batch: int) -> Failure | None:
        try:
            check_stateless(fn, elements.element_spec)
        except PforError:
            return None  # to run it once more would change variables
        first = batch * int(size)
        of_batch = elements.skip(first).take(int(size))
        found, again = find_failure(fn, of_batch), find_failure(fn, of_batch)
        if found is None or again is None or not found.is_same(again):
            return None  # the dataset, or the function, is another one whenever it is read
        return found.at(found.index + first)

    return _with_errors(made, find)


def _with_errors(made: Any, find: Find) -> Any:
    made.__class__ = _kind_of_dataset(type(made))
    made._tf_pfor_find = find
    return made


@functools.cache
def _kind_of_dataset(kind: type[Any]) -> Any:
    """A subclass whose iterators name the element that fails."""

    def iterator(self: Any) -> Any:
        found = kind.__iter__(self)
        if tf.executing_eagerly():
            found.__class__ = _kind_of_iterator(type(found))
            found._tf_pfor_find, found._tf_pfor_batch = self._tf_pfor_find, 0
        return found

    def prefetch(self: Any, *args: Nest, **kwargs: Nest) -> Any:
        return _with_errors(kind.prefetch(self, *args, **kwargs), self._tf_pfor_find)

    def with_options(self: Any, *args: Nest, **kwargs: Nest) -> Any:
        return _with_errors(kind.with_options(self, *args, **kwargs), self._tf_pfor_find)

    members = {"__iter__": iterator, "prefetch": prefetch, "with_options": with_options}
    return type(kind.__name__, (kind,), members)


@functools.cache
def _kind_of_iterator(kind: type[Any]) -> Any:
    def following(self: Any) -> Any:
        batch = self._tf_pfor_batch
        self._tf_pfor_batch += 1
        try:
            return kind.__next__(self)
        except (StopIteration, tf.errors.OutOfRangeError, tf.errors.CancelledError):
            raise
        except tf.errors.OpError as why:
            raise _named(why, self._tf_pfor_find(batch), batch) from None

    return type(kind.__name__, (kind,), {"__next__": following})


def _named(why: tf.errors.OpError, found: Failure | None, batch: int) -> tf.errors.OpError:
    """The error with the element in front of what TensorFlow says."""
    where = f"In batch {batch} of the dataset." if found is None else f"{found}."
    if "Cannot batch tensors with different shapes" in why.message:
        where += (
            " Elements of unknown rank, or with ragged=False, must have one shape: say the rank "
            "before, with tf.ensure_shape(x, [None, ...])."
        )
    return with_text(why, where)
