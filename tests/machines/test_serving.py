"""A batched SavedModel under concurrent requests, which TensorFlow's batch function gathers."""

import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

WIDTH, REQUESTS = 3, 64


class Scorer(tf.Module):
    """A model of one example."""

    def __init__(self):
        self.w = tf.Variable([1.0, -2.0, 0.5])

    @tf.function(input_signature=[tf.TensorSpec([WIDTH], tf.float32, "x")])
    def score(self, x):
        """[3] -> a score and a text."""
        logit = tf.reduce_sum(x * self.w)
        return {"score": logit, "label": tf.where(logit > 0.0, "yes", "no")}


class Served(tf.Module):
    """A model of a request of some rows, which are gathered from all callers.

    The number of rows is unknown in the signature: the batch function would keep a known one.
    """

    def __init__(self, path):
        self.model = tf.saved_model.load(path)

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "x")])
    def some(self, x):
        """One request."""

        @tf.nondifferentiable_batch_function(
            num_batch_threads=1,
            max_batch_size=16,
            batch_timeout_micros=20_000,
            allowed_batch_sizes=[1, 4, 16],
            max_enqueued_batches=REQUESTS,
        )
        def batch(rows):
            found = self.model.signatures["serving_default"](x=rows)
            size = tf.fill(tf.shape(rows)[:1], tf.shape(rows)[0])
            return found["score"], found["label"], size

        score, label, size = batch(x)
        return {"score": score, "label": label, "size": size}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """The model of one example, of a batch, and of one request that waits for others."""
    folder = tmp_path_factory.mktemp("models")
    one, many, served = (str(folder / name) for name in ("one", "many", "served"))
    model = Scorer()
    tf.saved_model.save(model, one, signatures=model.score)
    tf_pfor.saved_model.batch(one, many, verify=4)
    gathering = Served(many)
    tf.saved_model.save(gathering, served, signatures=gathering.some)
    return many, served


def answers(request):
    """The answers of many concurrent requests, and their rows."""
    rows = np.random.default_rng(0).normal(size=[REQUESTS, WIDTH]).astype(np.float32)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return rows, [*pool.map(lambda row: request(tf.constant(row[None])), rows)]


@pytest.mark.parametrize("is_saved", [False, True])
def test_each_request_gets_its_row(paths, is_saved):
    many, served = paths
    model = tf.saved_model.load(served) if is_saved else Served(many)
    request = model.signatures["serving_default"] if is_saved else model.some
    rows, found = answers(lambda row: request(x=row))
    for row, answer in zip(rows, found):
        logit = row @ [1.0, -2.0, 0.5]
        np.testing.assert_allclose(answer["score"], [logit], rtol=1e-5, atol=1e-6)
        assert answer["label"].numpy().tolist() == [b"yes" if logit > 0 else b"no"]
    sizes = {int(answer["size"][0]) for answer in found}
    assert sizes <= {1, 4, 16}
    assert max(sizes) > 1, "rows of several callers are one batch"
