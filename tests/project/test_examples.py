"""The example programs at tiny sizes: values and gradients of the weights, against their loops."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from examples import batch_norm, compare, gated_graph_network, lstm_true_length, tree_lstm


def _lstm():
    return lstm_true_length, lstm_true_length.make_weights(3, 4), (
        lstm_true_length.make_sequences(5, 4, 3)
    )  # fmt: skip


_tree = lambda: (tree_lstm, tree_lstm.make_weights(3, 4), (tree_lstm.make_trees(4, 5, 3),))


def _graph():
    graphs = gated_graph_network.make_graphs(2, 3, 2, kinds=2, width=4)
    return gated_graph_network, gated_graph_network.make_weights(2, 4), (graphs,)


@pytest.mark.parametrize("make", [_graph, _lstm, _tree])
def test_values_and_gradients(make):
    module, weights, given = make()
    found = {}
    for name, run in (("mapped", tf.function(module.mapped)), ("looped", module.looped)):
        with warnings.catch_warnings():
            warnings.simplefilter("error", tf_pfor.FallbackWarning)
            found[name] = compare.value_and_gradients(run, weights, *given)
    assert len(found["mapped"]) == 1 + len(weights)
    for a, b in zip(found["mapped"], found["looped"], strict=True):
        assert a.shape == b.shape
        assert np.any(b.numpy())
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (gated_graph_network, {"count": 2, "nodes": 2, "most": 1, "kinds": 2, "width": 2}),
        (lstm_true_length, {"count": 3, "longest": 3, "inputs": 2, "state": 2}),
        (tree_lstm, {"count": 2, "most": 3, "inputs": 2, "state": 2}),
    ],
)
def test_program(module, sizes, capsys):
    assert module.main(**sizes) < 1e-4
    said = capsys.readouterr().out
    assert "largest difference" in said
    assert "Python loop" in said


def test_batch_norm(capsys):
    weights = batch_norm.make_weights(3, 4)
    data = batch_norm.make_data(6, 3)
    found, expected = (
        batch_norm.value_and_gradients(run, weights, *data)
        for run in (batch_norm.losses, batch_norm.losses_of_batch)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    assert batch_norm.main(count=8, inputs=3, state=4, steps=2) < 1e-4
    assert "largest difference" in capsys.readouterr().out
