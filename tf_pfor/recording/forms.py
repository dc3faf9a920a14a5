"""Forms: keys that are equal for inputs of calls of one kind; and names of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf._eager_ops import form_of_tensor
from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.recording.tensors import Deferred

RESOURCE = tf.resource.as_datatype_enum
_DTYPES = [d for d in vars(tf.dtypes).values() if isinstance(d, tf.DType)]
FOLLOWED = frozenset(
    d.as_datatype_enum for d in _DTYPES if d.is_floating or d.is_complex or d == tf.resource
)
"""The dtypes of tensors that a gradient may reach."""
_COMPARED = frozenset(
    d.as_datatype_enum for d in _DTYPES if d.is_integer or d.is_bool or d == tf.string
)


def is_number(x: object) -> bool:
    """Whether a Python value is compared by its value."""
    return x is None or isinstance(x, (bool, int, float, complex, str, bytes, tf.DType))


def form_of(x: object) -> Any:
    """The form of an input of an op: dtype and sizes of a tensor, the value of another thing."""
    if isinstance(x, Deferred):
        return x.as_input()[0]
    if isinstance(x, tf.Tensor):
        return form_of_tensor(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.str, x.shape, x.tobytes()
    return _form_of_value(x)


def name_of(x: tf.Tensor, form: tuple[object, ...]) -> Any:
    """A name that is equal for inputs that are known to be equal.

    Numbers that a tape may watch are not compared by value: each has a gradient.
    """
    if isinstance(x, Deferred):
        return x.as_input()[1]
    if form[0] in _COMPARED and form[1] == () and hasattr(x, "numpy"):
        return form[0], x.numpy()
    return id(x)


def opened(x: Nest, leaves: list[Any], names: list[Any]) -> Any:
    """The form of a nest; its leaves, and the names of its tensors, are added to the lists."""
    cls = type(x)
    if isinstance(x, Deferred):
        form, name = x.as_input()
        leaves.append(x)
        names.append(name)
        return form
    if cls is tuple or cls is list:
        return cls, *[opened(item, leaves, names) for item in x]
    if isinstance(x, tf.Tensor):
        form = form_of_tensor(x)
        leaves.append(x)
        names.append(name_of(x, form))
        return form
    if cls is dict:
        return dict, *[(k, opened(x[k], leaves, names)) for k in sorted(x)]
    if is_number(x):
        leaves.append(x)
        return _form_of_value(x)
    if isinstance(x, (np.ndarray, np.generic, tf.Variable)):
        given: Nest = x
        return opened(tf.convert_to_tensor(given), leaves, names)
    inner = nests.from_user(x)
    if not tf.nest.is_nested(inner) and not isinstance(x, tf.__internal__.CompositeTensor):
        leaves.append(x)
        return id(x)
    return repr(nests.skeleton(inner)), *[opened(y, leaves, names) for y in nests.flatten(inner)]


def _form_of_value(x: object) -> Any:
    """Type and value; by their text what ``==`` does not tell apart, as 0.0 and -0.0."""
    return type(x), repr(x) if isinstance(x, (list, tuple, float, complex)) else x
