"""A gated graph network of width 64 over graphs of 20 or 100 nodes: a map over nodes in a map."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

WIDTH, KINDS, STEPS = 64, 4, 2
NEIGHBOURS = {20: 5, 100: 10}


def data(nodes: int, batch: int) -> tuple[Arrays, Arrays]:
    """Weights; embeddings, neighbours, kinds of edges, and numbers of neighbours."""
    rng, n = np.random.default_rng(0), WIDTH
    shapes = ([KINDS, n, n], [2 * n, 2 * n], [2 * n, n])
    weights = [normal(rng, *shape, fan=shape[-2]) for shape in shapes]
    each = [batch, nodes, NEIGHBOURS[nodes]]
    numbers = [rng.integers(0, nodes, each), rng.integers(0, KINDS, each)]
    numbers.append(rng.integers(0, NEIGHBOURS[nodes] + 1, each[:2]))
    return weights, [normal(rng, batch, nodes, n), *(x.astype(np.int32) for x in numbers)]


def tensorflow() -> tuple[Fn, Fn]:
    """``over`` is the map over nodes; by hand all nodes are masked to the most neighbours."""
    from benchmarks import while_loops
    from examples import gated_graph_network as ggnn

    def one(w: Any, x: Any, *edges: Any, over: Fn) -> Any:
        for _ in range(STEPS):

            def new(node: Any, x: Any = x) -> Any:
                return ggnn.new_embedding(ggnn.Weights(*w), x, *node)

            x = over(new, (x, *edges))
        return x

    return one, lambda w, *rows: while_loops.graphs_by_hand(ggnn.Weights(*w), ggnn.Graphs(*rows))


def gru(of: Any, w: Any, own: Any, message: Any) -> Any:
    """The new embedding of a node."""
    sigmoid, tanh, join = of
    gates = sigmoid(join([message, own]) @ w[1])
    reset, update = gates[:WIDTH], gates[WIDTH:]
    return (1.0 - update) * own + update * tanh(join([message, reset * own]) @ w[2])


def jax() -> Fn:
    """A ``vmap`` over nodes."""
    import jax as library
    import jax.numpy as jnp

    of = (library.nn.sigmoid, jnp.tanh, jnp.concatenate)

    def one(w: Any, x: Any, *edges: Any) -> Any:
        for _ in range(STEPS):

            def new(own: Any, neighbours: Any, kinds: Any, degree: Any, x: Any = x) -> Any:
                def receive(k: Any, total: Any) -> Any:
                    return total + x[neighbours[k]] @ w[0][kinds[k]]

                message = library.lax.fori_loop(0, degree, receive, jnp.zeros(WIDTH))
                return gru(of, w, own, message)

            x = library.vmap(new)(x, *edges)
        return x

    return one


def torch() -> tuple[Fn, dict[str, Fn]]:
    """A ``vmap`` over nodes, masked to the most neighbours."""
    import torch as library

    of = (library.sigmoid, library.tanh, library.cat)

    def one(w: Any, x: Any, *edges: Any) -> Any:
        for _ in range(STEPS):

            def new(own: Any, neighbours: Any, kinds: Any, degree: Any, x: Any = x) -> Any:
                message = library.zeros_like(own)
                for k in range(neighbours.shape[0]):
                    sent = x.index_select(0, neighbours[k : k + 1])
                    transform = w[0].index_select(0, kinds[k : k + 1])
                    message = message + library.where(k < degree, (sent @ transform[0])[0], 0.0)
                return gru(of, w, own, message)

            x = library.func.vmap(new)(x, *edges)
        return x

    return one, {}


SMALL, LARGE = (
    Work(
        f"gated graph network, {nodes} nodes", "batch", "edges", (16,) if nodes < 100 else (4,),
        (1, 4, 16, 64), functools.partial(data, nodes), tensorflow, jax, torch, nested=True,
        torch_compiles=False, amount=lambda _, rows: float(STEPS * rows[3].sum()),
    )
    for nodes in (20, 100)
)  # fmt: skip
