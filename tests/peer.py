"""TensorFlow's own vectorizer, closed: whoever enters it fails."""

import importlib
import sys
import types
from unittest import mock

import pytest
import tensorflow as tf

import tf_pfor  # noqa: F401  (its drop_in module)

DROP_IN = sys.modules["tf_pfor.frontends.drop_in"]
_PEER = DROP_IN._PEER
FLOW = importlib.import_module(_PEER + "control_flow_ops")
GRADIENTS = importlib.import_module(_PEER + "gradients")


def entered(*_, **__):
    raise AssertionError("TensorFlow's own vectorizer was entered")


@pytest.fixture
def peer():
    """TensorFlow's own entry points raise; what is reached in their place is ours."""
    own = {place: _at(place) for place in DROP_IN._OURS}
    closed = {place: _stub(place[1]) for place in own}
    DROP_IN._rename({id(own[place]): closed[place] for place in own})
    with mock.patch.object(FLOW, "_pfor_impl", entered):
        try:
            yield
        finally:
            DROP_IN._rename({id(closed[place]): own[place] for place in own})
    assert own == {place: _at(place) for place in own}
    assert tf.vectorized_map is FLOW.vectorized_map


def _at(place):
    module, name = place
    return getattr(importlib.import_module(_PEER + module), name)


def _stub(name):
    return types.FunctionType(entered.__code__, globals(), name)
