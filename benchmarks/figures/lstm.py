"""An LSTM of inputs of 128: over rows of different lengths, its gradients and its jacobians."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

INPUT, STATE, LONGEST, STEPS = 128, 256, 100, 10


def data(kind: str, size: int) -> tuple[Arrays, Arrays]:
    """Matrices of inputs and states and a bias; sequences, and lengths where they differ."""
    rng = np.random.default_rng(0)
    state = size if kind == "jacobian" else STATE
    weights = [normal(rng, k, 4 * state, fan=k) for k in (INPUT, state)]
    weights.append(normal(rng, 4 * state, fan=100))
    if kind == "jacobian":
        return weights, [normal(rng, STEPS, INPUT)]
    if kind == "gradients":
        return weights, [normal(rng, size, STEPS, INPUT)]
    lengths = rng.integers(1, LONGEST + 1, size).astype(np.int32)
    return weights, [normal(rng, size, LONGEST, INPUT), lengths]


def cell(of: Any, w: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
    """One step; ``of`` has sigmoid, tanh and a split in four along the last axis."""
    sigmoid, tanh, split = of
    z = x @ w[0] + h @ w[1] + w[2]
    i, f, g, o = split(z)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c, z


def tensorflow(kind: str, unrolled: bool = False) -> tuple[Fn, Fn]:
    """The last state of a sequence, or its loss."""
    import tensorflow as tf

    of = (tf.sigmoid, tf.tanh, lambda z: tf.split(z, 4, -1))

    def last(w: Any, x: Any, length: Any = STEPS) -> Any:
        zero = tf.zeros([1, w[1].shape[0]])
        if unrolled:
            h = c = zero
            for t in range(STEPS):
                h, c, _ = cell(of, w, x[t][None], h, c)
            return h[0]

        def body(t: Any, h: Any, c: Any) -> Any:
            return (t + 1, *cell(of, w, x[t][None], h, c)[:2])

        most = x.shape[0]
        start = (0, zero, zero)
        return tf.while_loop(lambda t, *_: t < length, body, start, maximum_iterations=most)[1][0]

    def masked(w: Any, x: Any, lengths: Any) -> Any:
        steps, zero = tf.transpose(x, [1, 0, 2]), tf.zeros([x.shape[0], STATE])
        longest = tf.reduce_max(lengths)

        def body(t: Any, h: Any, c: Any) -> Any:
            new_h, new_c, _ = cell(of, w, steps[t], h, c)
            active = (t < lengths)[:, None]
            return t + 1, tf.where(active, new_h, h), tf.where(active, new_c, c)

        return tf.while_loop(lambda t, *_: t < longest, body, (0, zero, zero))[1]

    if kind == "gradients":
        return lambda w, x: tf.reduce_sum(last(w, x) ** 2), gradients_by_hand(of)
    return last, jacobian_by_hand(of) if kind == "jacobian" else masked


def gradients_by_hand(of: Any) -> Fn:
    """Per-example gradients: one batched product over time."""
    import tensorflow as tf

    def by_hand(w: Any, x: Any) -> list[Any]:
        h = c = tf.zeros([x.shape[0], STATE])
        before: list[Any] = []
        sums: list[Any] = []
        with tf.GradientTape() as tape:
            for t in range(STEPS):
                before.append(h)
                h, c, z = cell(of, w, x[:, t], h, c)
                sums.append(z)
            loss = tf.reduce_sum(h**2)
        dz = tf.stack(tape.gradient(loss, sums), 1)
        states = tf.stack(before, 1)
        products = [tf.matmul(a, dz, transpose_a=True) for a in (x, states)]
        return [*products, tf.reduce_sum(dz, 1)]

    return by_hand


def jacobian_by_hand(of: Any) -> Fn:
    """The backward pass of all cotangents at once."""
    import tensorflow as tf

    def by_hand(w: Any, x: Any) -> Any:
        state = w[1].shape[0]
        h = c = tf.zeros([1, state])
        saved: list[Any] = []
        for t in range(STEPS):
            before = c
            h, c, z = cell(of, w, x[t][None], h, c)
            i, f, g, o = tf.split(z, 4, 1)
            saved.append((tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o), before, c))
        dh, dc = tf.eye(state), tf.zeros([1, state])
        rows: list[Any] = []
        for i, f, g, o, before, c in reversed(saved):
            tc = tf.tanh(c)
            dc += dh * (o * (1 - tc * tc))
            di, df = dc * (g * i * (1 - i)), dc * (before * f * (1 - f))
            dz = tf.concat([di, df, dc * (i * (1 - g * g)), dh * (tc * o * (1 - o))], 1)
            rows.append(tf.matmul(dz, w[0], transpose_b=True))
            dh, dc = tf.matmul(dz, w[1], transpose_b=True), dc * f
        return tf.stack(rows[::-1], 1)

    return by_hand


def jax(kind: str, unrolled: bool = False) -> Fn:
    """The same; a loop of fixed length has a gradient, one to the true length has none."""
    import jax as library
    import jax.numpy as jnp

    of = (library.nn.sigmoid, jnp.tanh, lambda z: jnp.split(z, 4, -1))

    def last(w: Any, x: Any, length: Any = STEPS) -> Any:
        h = c = jnp.zeros(w[1].shape[0])
        if unrolled:
            for t in range(STEPS):
                h, c, _ = cell(of, w, x[t], h, c)
            return h
        return library.lax.fori_loop(0, length, lambda t, s: cell(of, w, x[t], *s)[:2], (h, c))[0]

    return (lambda w, x: (last(w, x) ** 2).sum()) if kind == "gradients" else last


def torch(kind: str, unrolled: bool = False) -> tuple[Fn, dict[str, Fn]]:
    """The same, always unrolled: a batch masked to the longest row, or packed by hand."""
    import torch as library

    of = (library.sigmoid, library.tanh, lambda z: library.chunk(z, 4, -1))

    def last(w: Any, x: Any, length: Any = None) -> Any:
        h = c = x.new_zeros(w[1].shape[0])
        for t in range(x.shape[0]):
            new_h, new_c, _ = cell(of, w, x[t], h, c)
            if length is None:
                h, c = new_h, new_c
            else:
                h, c = (library.where(t < length, a, b) for a, b in ((new_h, h), (new_c, c)))
        return h

    def packed(w: Any, x: Any, lengths: Any) -> Fn:
        layer = library.nn.LSTM(INPUT, STATE, batch_first=True).to(x.device)
        with library.no_grad():
            layer.weight_ih_l0.copy_(w[0].T)
            layer.weight_hh_l0.copy_(w[1].T)
            layer.bias_ih_l0.copy_(w[2])
            layer.bias_hh_l0.zero_()
        on_cpu = lengths.cpu()
        pack = library.nn.utils.rnn.pack_padded_sequence

        def call() -> Any:
            with library.no_grad():
                rows = pack(x, on_cpu, batch_first=True, enforce_sorted=False)
                return layer(rows)[1][0][0]

        return call

    if kind == "gradients":
        return lambda w, x: (last(w, x) ** 2).sum(), {}
    return last, {"torch packed": packed} if kind == "forward" else {}


def work(title: str, axis: str, unit: str, kind: str, unrolled: bool = False, **more: Any) -> Work:
    """The workload of a kind."""
    made = {f.__name__: functools.partial(f, kind, unrolled) for f in (tensorflow, jax, torch)}
    return Work(
        title, axis, unit, data=functools.partial(data, kind), **made,
        kind="map" if kind == "forward" else kind, **more,
    )  # fmt: skip


FORWARD = work(
    "LSTM, variable lengths", "batch", "tokens", "forward", small=(1, 64),
    full=(1, 4, 16, 64, 256), amount=lambda _, rows: float(rows[1].sum()), torch_compiles=False,
)  # fmt: skip
GRADIENTS = work(
    "LSTM, gradients", "batch", "gradients", "gradients", small=(16,), full=(1, 4, 16, 64, 256)
)
UNROLLED, LOOPED = (
    work(
        f"LSTM {word}, jacobian", "outputs", "rows", "jacobian", unrolled,
        small=(64,), full=(1, 4, 16, 64, 128),
    )
    for word, unrolled in (("unrolled", True), ("in a loop", False))
)  # fmt: skip
