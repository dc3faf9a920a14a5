"""Settings of a thread, TensorFlow's and Keras', for another thread that works for it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tensorflow.python.eager import context as _context

_OF_TENSORFLOW = ("device_name", "device_spec", "scope_name", "function_call_options")
_KERAS = "keras.src.backend.common.global_state"
_OF_KERAS = ("GLOBAL_STATE_TRACKER", "GLOBAL_SETTINGS_TRACKER")


def settings() -> Callable[[], None]:
    """A function that gives another thread the settings of this one.

    TensorFlow keeps a device and a name scope for a thread. Keras keeps the policy of dtypes, and
    the layer whose call is under way.
    """
    thread = _context.context()._thread_local_data
    of_tensorflow = {name: getattr(thread, name) for name in _OF_TENSORFLOW}
    keras = sys.modules.get(_KERAS)
    trackers = [getattr(keras, name) for name in _OF_KERAS if hasattr(keras, name)]
    of_keras = [(tracker, dict(vars(tracker))) for tracker in trackers]

    def put() -> None:
        mine = _context.context()._thread_local_data
        for name, value in of_tensorflow.items():
            setattr(mine, name, value)
        for tracker, state in of_keras:
            for name, value in state.items():
                # A list is a stack of scopes, which each thread has for itself.
                setattr(tracker, name, list(value) if type(value) is list else value)

    return put
