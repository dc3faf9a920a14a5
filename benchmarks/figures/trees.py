"""A Tree-LSTM, state 128, over random binary trees of 2 to 15 or 100 leaves."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

STATE = 128


def data(most: int, batch: int) -> tuple[Arrays, Arrays]:
    """Weights; leaves, the children of inner nodes, and numbers of leaves."""
    rng, s = np.random.default_rng(0), STATE
    weights = [normal(rng, s, 3 * s, fan=s), normal(rng, 2 * s, 5 * s, fan=2 * s)]
    weights.append(normal(rng, 5 * s, fan=100))
    sizes = rng.integers(2, most + 1, batch).astype(np.int32)
    children = np.zeros([batch, most - 1, 2], np.int32)
    for tree, size in enumerate(sizes):
        roots = list(range(size))
        for inner in range(size - 1):
            at = rng.integers(len(roots) - 1)
            children[tree, inner] = roots[at : at + 2]
            roots[at : at + 2] = [size + inner]
    return weights, [normal(rng, batch, most, s), children, sizes]


def leaf(of: Any, w: Any, leaves: Any) -> Any:
    """The states (h, c) of leaves, side by side."""
    sigmoid, tanh, split, join = of
    i, o, g = split(leaves @ w[0] + w[2][: 3 * STATE], 3)
    c = sigmoid(i) * tanh(g)
    return join([sigmoid(o) * tanh(c), c])


def node(of: Any, w: Any, left: Any, right: Any) -> Any:
    """The state of an inner node, of any number of trees."""
    sigmoid, tanh, split, join = of
    (h_left, c_left), (h_right, c_right) = split(left, 2), split(right, 2)
    i, o, g, f_left, f_right = split(join([h_left, h_right]) @ w[1] + w[2], 5)
    c = sigmoid(i) * tanh(g)
    c = c + sigmoid(f_left + 1.0) * c_left + sigmoid(f_right + 1.0) * c_right
    return join([sigmoid(o) * tanh(c), c])


def tensorflow() -> tuple[Fn, Fn]:
    """A loop over the inner nodes of a tree; by hand masked to the largest tree."""
    import tensorflow as tf

    split, join = lambda x, n: tf.split(x, n, -1), lambda xs: tf.concat(xs, -1)
    of = (tf.sigmoid, tf.tanh, split, join)

    def one(w: Any, leaves: Any, children: Any, size: Any) -> Any:
        nodes = tf.concat([leaf(of, w, leaves), tf.zeros([leaves.shape[0] - 1, 2 * STATE])], 0)

        def step(k: Any, nodes: Any) -> Any:
            pair = tf.gather(nodes, children[k])
            new = node(of, w, pair[:1], pair[1:])
            return k + 1, tf.tensor_scatter_nd_update(nodes, [[size + k]], new)

        nodes = tf.while_loop(lambda k, _: k < size - 1, step, (0, nodes))[1]
        return nodes[2 * size - 2, :STATE]

    def by_hand(w: Any, leaves: Any, children: Any, sizes: Any) -> Any:
        batch, most, _ = leaves.shape
        number = tf.range(batch)
        nodes = tf.concat([leaf(of, w, leaves), tf.zeros([batch, most, 2 * STATE])], 1)

        def step(k: Any, nodes: Any) -> Any:
            pair = tf.gather(nodes, children[:, k], batch_dims=1)
            new = node(of, w, pair[:, 0], pair[:, 1])
            place = tf.where(k < sizes - 1, sizes + k, 2 * most - 1)  # the last one is not read
            places = tf.stack([number, place], 1)
            return k + 1, tf.tensor_scatter_nd_update(nodes, places, new)

        longest = tf.reduce_max(sizes) - 1
        nodes = tf.while_loop(lambda k, _: k < longest, step, (0, nodes))[1]
        return tf.gather(nodes, 2 * sizes - 2, batch_dims=1)[:, :STATE]

    return one, by_hand


def jax() -> Fn:
    """The same in JAX."""
    import jax as library
    import jax.numpy as jnp

    split, join = lambda x, n: jnp.split(x, n, -1), lambda xs: jnp.concatenate(xs, -1)
    of = (library.nn.sigmoid, jnp.tanh, split, join)

    def one(w: Any, leaves: Any, children: Any, size: Any) -> Any:
        empty = jnp.zeros([leaves.shape[0] - 1, 2 * STATE])
        nodes = jnp.concatenate([leaf(of, w, leaves), empty])

        def step(k: Any, nodes: Any) -> Any:
            left, right = children[k]
            return nodes.at[size + k].set(node(of, w, nodes[left], nodes[right]))

        return library.lax.fori_loop(0, size - 1, step, nodes)[2 * size - 2, :STATE]

    return one


def torch() -> tuple[Fn, dict[str, Fn]]:
    """The same in torch, masked: a loop to a number that is known only in a row has no ``vmap``."""
    import torch as library

    split, join = lambda x, n: library.chunk(x, n, -1), lambda xs: library.cat(xs, -1)
    of = (library.sigmoid, library.tanh, split, join)

    def one(w: Any, leaves: Any, children: Any, size: Any) -> Any:
        most = leaves.shape[0]
        nodes = library.cat([leaf(of, w, leaves), leaves.new_zeros(most, 2 * STATE)])
        for k in range(most - 1):
            pair = nodes.index_select(0, children[k])
            new = node(of, w, pair[:1], pair[1:])
            place = library.where(k < size - 1, size + k, 2 * most - 1)
            nodes = nodes.index_copy(0, place.long()[None], new)
        return nodes.index_select(0, (2 * size - 2)[None])[0, :STATE]

    return one, {}


SMALL, LARGE = (
    Work(
        f"Tree-LSTM, {most} leaves", "batch", "leaves", (64,) if most < 100 else (16,),
        (1, 4, 16, 64, 256), functools.partial(data, most), tensorflow, jax, torch,
        torch_compiles=False, amount=lambda _, rows: float(rows[2].sum()),
    )
    for most in (15, 100)
)  # fmt: skip
