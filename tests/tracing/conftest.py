"""Each test of this room begins with an empty cache."""

import pytest
import tensorflow as tf

import tf_pfor


@pytest.fixture(autouse=True)
def _empty():
    tf.random.set_seed(None)  # another test may have set one
    tf_pfor.clear_cache()
