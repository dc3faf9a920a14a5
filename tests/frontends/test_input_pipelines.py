"""The pipelines of the benchmark give what ``map(fn).batch(n)`` gives."""

import pytest

from benchmarks import input_pipelines

# Those with ops that may run in a loop over the batch, with a warning.
LOOPED = {"CSV lines", "tf.Example", "text, vocabulary", "image, augment"}


@pytest.mark.parametrize("name", input_pipelines.PIPELINES)
def test_as_map_and_batch(name, recwarn):
    pipeline = input_pipelines.PIPELINES[name]()
    vectorized, loop = pipeline.vectorized("vectorized"), pipeline.loop()
    assert not recwarn.list or name in LOOPED
    assert input_pipelines.largest_difference(vectorized, loop, 2) < 1e-5
