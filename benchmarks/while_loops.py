"""While loops with a trip count for each row: tf_pfor beside its peers, in one run.

    python -m benchmarks.while_loops [--work lstm tree ...] [--batch 1 16 64 256] [--memory]

Contenders: TensorFlow's own ``tf.vectorized_map`` (a black box), the loop batched by hand (masked
to the longest row), ``tf.map_fn``, and tf_pfor. Forward, and forward + backward, and for the LSTM
both under jit_compile. Each workload and batch runs in a child process, since TensorFlow's own map
can crash it. Times are medians in ms; the ratios are medians over rounds of tf_pfor to the other.
``--memory`` gives the growth of the resident set in MB, each contender alone in a process.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing
from examples import gated_graph_network as ggnn
from examples import tree_lstm

STEPS, INPUT, STATE = 100, 128, 256
BOUND = "products alone"  # not the same function: how little time there can be
NOT_COMPILED = ("tensorflow", "map_fn", "by hand, sorted", BOUND)  # all but the masked ones


def maps(one):
    """The two vectorizers over the same function of one row."""
    return {
        "tf_pfor": lambda args: tf_pfor.vectorized_map(one, args, fallback_to_while_loop=False),
        "tensorflow": lambda args: tf.vectorized_map(one, args),
    }


def lstm_cell(x, h, c, kernel, bias):
    """One step on [..., input] and [..., state]."""
    z = tf.concat([x, h], -1) @ kernel + bias
    i, g, f, o = tf.split(z, 4, -1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def lstm(batch, rng, steps=STEPS, lengths=None, most=None):
    """``most``: a bound on the number of trips, which XLA needs to differentiate a loop."""
    x = rng.normal(size=(batch, steps, INPUT)).astype(np.float32)
    if lengths is None:
        lengths = rng.integers(1, steps + 1, batch)
    kernel = tf.Variable(rng.normal(size=(INPUT + STATE, 4 * STATE)).astype(np.float32) * 0.05)
    bias = tf.Variable(tf.zeros([4 * STATE]))

    def one(args):
        x, k = args

        def body(t, h, c):
            h, c = lstm_cell(x[t][None], h[None], c[None], kernel, bias)
            return t + 1, h[0], c[0]

        zero = tf.zeros([STATE])
        return tf.while_loop(
            lambda t, *_: t < k, body, (0, zero, zero), maximum_iterations=most
        )[1]  # fmt: skip

    def by_hand(args):
        x, k = args
        steps = tf.TensorArray(tf.float32, x.shape[1], clear_after_read=False)
        steps = steps.unstack(tf.transpose(x, [1, 0, 2]))
        n = x.shape[0]

        def body(t, h, c):
            new_h, new_c = lstm_cell(steps.read(t), h, c, kernel, bias)
            active = (t < k)[:, None]
            return t + 1, tf.where(active, new_h, h), tf.where(active, new_c, c)

        zero = tf.zeros([n, STATE])
        longest = tf.reduce_max(k)
        return tf.while_loop(
            lambda t, *_: t < longest, body, (0, zero, zero), maximum_iterations=most
        )[1]  # fmt: skip

    def in_order(args):
        """The longest first, so that the rows at work are the first ones: no row too many."""
        x, k = args
        order = tf.argsort(k, direction="DESCENDING")
        steps = tf.TensorArray(tf.float32, x.shape[1], clear_after_read=False)
        steps = steps.unstack(tf.transpose(tf.gather(x, order), [1, 0, 2]))

        def body(t, h, c):
            active = tf.reduce_sum(tf.cast(t < k, tf.int32))
            new_h, c = lstm_cell(steps.read(t)[:active], h[:active], c[:active], kernel, bias)
            return t + 1, tf.concat([new_h, h[active:]], 0), c

        zero = tf.zeros([x.shape[0], STATE])
        loose = tf.TensorShape([None, STATE])
        h = tf.while_loop(
            lambda t, *_: t < tf.reduce_max(k), body, (0, zero, zero),
            shape_invariants=(tf.TensorShape([]), loose, loose),
        )[1]  # fmt: skip
        return tf.gather(h, tf.argsort(order))

    args = (tf.constant(x), tf.constant(lengths, tf.int32))
    contenders = {**maps(one), "by hand": by_hand, "by hand, sorted": in_order}
    contenders[BOUND] = functools.partial(products_alone, kernel)
    return contenders, args, [kernel, bias]


def products_alone(kernel, args):
    """A bound and no contender: the products of the rows at work, and nothing else."""
    x, k = args
    active = tf.reduce_sum(tf.cast(tf.range(x.shape[1])[:, None] < k, tf.int32), 1)
    block = tf.concat([x[:, 0], tf.zeros([x.shape[0], STATE])], -1)
    longest = tf.reduce_max(k)

    def body(t, total):
        z = (block[: active[t]] + total) @ kernel
        first = tf.reshape(z[0, : INPUT + STATE], [1, -1])
        return t + 1, 1e-3 * first  # so that gradients go through all trips

    zero = tf.zeros([1, INPUT + STATE])
    return tf.while_loop(lambda t, *_: t < longest, body, (0, zero))[1]


def arithmetic_ms(kind, args, kernel):
    """A bound: the products of the rows at work at the speed of large ones, in ms.

    Forward each row is multiplied by the kernel. With gradients its product by the row is added to
    the kernel's gradient, and its part for the state goes back.
    """
    block = tf.ones([1024, kernel.shape[0]])

    @tf.function
    def large(trips):
        """So many products of [1024, input + state], each of which needs the one before."""
        step = lambda t, x: (t + 1, x + ((block + x) @ kernel)[:1, : x.shape[1]] * 1e-3)  # noqa: E731
        return tf.while_loop(lambda t, _: t < trips, step, (0, block[:1] * 0.0))[1]

    times = timing.interleaved({"large": lambda: large(tf.constant(20)).numpy()}, seconds=2.0)
    seconds_of_number = min(times["large"]) / (20 * block.shape[0] * kernel.shape[0])
    numbers = INPUT + STATE if kind == "forward" else 2 * (INPUT + STATE) + STATE
    return 1e3 * seconds_of_number * numbers * int(tf.reduce_sum(args[1]))


def fixed(batch, rng):
    """All rows make 50 trips: one loop for all."""
    _, args, weights = lstm(batch, rng, 50, np.full(batch, 50))

    def one(args):
        x, _ = args
        kernel, bias = weights

        def body(t, h, c):
            h, c = lstm_cell(x[t][None], h[None], c[None], kernel, bias)
            return t + 1, h[0], c[0]

        zero = tf.zeros([STATE])
        return tf.while_loop(lambda t, *_: t < 50, body, (0, zero, zero))[1]

    def by_hand(args):
        x, _ = args
        kernel, bias = weights
        steps = tf.TensorArray(tf.float32, 50, clear_after_read=False)
        steps = steps.unstack(tf.transpose(x, [1, 0, 2]))

        def body(t, h, c):
            return t + 1, *lstm_cell(steps.read(t), h, c, kernel, bias)

        zero = tf.zeros([x.shape[0], STATE])
        return tf.while_loop(lambda t, *_: t < 50, body, (0, zero, zero))[1]

    return {**maps(one), "by hand": by_hand}, args, weights


def cheap(batch, rng):
    """tanh(s @ W) of width 16."""
    w = tf.Variable(rng.normal(size=(16, 16)).astype(np.float32) * 0.3)
    s = tf.constant(rng.normal(size=(batch, 16)).astype(np.float32))
    k = tf.constant(rng.integers(1, STEPS + 1, batch), tf.int32)

    def one(args):
        s, k = args
        body = lambda t, s: (t + 1, tf.tanh(s[None] @ w)[0])  # noqa: E731
        return tf.while_loop(lambda t, s: t < k, body, (0, s))[1]

    def by_hand(args):
        s, k = args

        def body(t, s):
            return t + 1, tf.where((t < k)[:, None], tf.tanh(s @ w), s)

        longest = tf.reduce_max(k)
        return tf.while_loop(lambda t, s: t < longest, body, (0, s))[1]

    return {**maps(one), "by hand": by_hand}, (s, k), [w]


def tree(batch, rng, of_one=None):
    """Trees of up to 100 leaves, state 128, the states of a tree's nodes in a tensor of its own."""
    weights = tree_lstm.make_weights(128, 128)
    trees = tree_lstm.make_trees(batch, 100, 128)
    one = functools.partial(of_one or functional_tree, weights)
    contenders = {
        **maps(one),
        "map_fn": lambda t: tf.map_fn(one, t, fn_output_signature=tf.float32),
    }
    return contenders, trees, list(weights)


def functional_tree(weights, tree):
    """The program ``tree_lstm.tree_lstm_of_one``, which keeps the states in a TensorArray."""
    state = weights.bias.shape[0] // 5
    most = tree.leaves.shape[0]
    gates = tf.linalg.matmul(tree.leaves, weights.leaf) + weights.bias[: 3 * state]
    i, o, g = tf.split(gates, 3, 1)
    c = tf.sigmoid(i) * tf.tanh(g)
    h = tf.sigmoid(o) * tf.tanh(c)
    nodes = tf.concat([tf.concat([h, c], 1), tf.zeros([most - 1, 2 * state])], 0)

    def step(k, nodes):
        pair = tf.gather(nodes, tree.children[k])  # [2, 2 * state]
        (h_left, c_left), (h_right, c_right) = tf.split(pair[0], 2), tf.split(pair[1], 2)
        both = tf.concat([h_left, h_right], 0)
        gates = tf.linalg.matvec(weights.node, both, transpose_a=True) + weights.bias
        i, o, g, f_left, f_right = tf.split(gates, 5)
        c = tf.sigmoid(i) * tf.tanh(g)
        c += tf.sigmoid(f_left + 1.0) * c_left + tf.sigmoid(f_right + 1.0) * c_right
        h = tf.sigmoid(o) * tf.tanh(c)
        new = tf.concat([h, c], 0)[None]
        return k + 1, tf.tensor_scatter_nd_update(nodes, [[tree.sizes + k]], new)

    _, nodes = tf.while_loop(lambda k, _: k < tree.sizes - 1, step, (0, nodes))
    return nodes[2 * tree.sizes - 2, :state]


def tree_list(batch, rng):
    """``tree`` with the states in a TensorArray, which TensorFlow's own cannot index by row."""
    return tree(batch, rng, tree_lstm.tree_lstm_of_one)


def node(batch, rng):
    """One map over all nodes of all graphs: a while over each node's true neighbours."""
    graphs, weights = ggnn.make_graphs(batch, 100, 10, 4, 64), ggnn.make_weights(4, 64)

    def one(args):
        graph, own, neighbours, kinds, degree, everything = args
        return ggnn.new_embedding(weights, everything[graph], own, neighbours, kinds, degree)

    def of(run):
        def steps(graphs):
            x = graphs.embeddings
            flat = [tf.reshape(t, [-1, *t.shape[2:]]) for t in graphs[1:]]
            which = tf.repeat(tf.range(x.shape[0]), x.shape[1])
            for _ in range(ggnn.STEPS):
                rows = (which, tf.reshape(x, [-1, x.shape[-1]]), *flat)
                x = tf.reshape(run(lambda row, x=x: one((*row, x)), rows), x.shape)
            return x

        return steps

    contenders = {
        "tf_pfor": of(lambda f, a: tf_pfor.vectorized_map(f, a, fallback_to_while_loop=False)),
        "tensorflow": of(tf.vectorized_map),
        "by hand": functools.partial(graphs_by_hand, weights),
        "another algorithm": functools.partial(graphs_by_kind, weights),
    }
    return contenders, graphs, list(weights)


def graph(batch, rng):
    """A map over graphs of a map over nodes of a while over neighbours."""
    graphs, weights = ggnn.make_graphs(batch, 100, 10, 4, 64), ggnn.make_weights(4, 64)
    contenders = {
        "tf_pfor": functools.partial(ggnn.mapped, weights),
        "by hand": functools.partial(graphs_by_hand, weights),
        "another algorithm": functools.partial(graphs_by_kind, weights),
    }
    return contenders, graphs, list(weights)


def graphs_by_hand(weights, graphs):
    """All graphs and nodes at once: a loop to the largest number of neighbours, masked."""
    x = graphs.embeddings
    most = tf.reduce_max(graphs.degrees)
    shape = x.shape
    for _ in range(ggnn.STEPS):

        def receive(k, total, x=x):
            sent = tf.gather(x, graphs.neighbours[:, :, k], batch_dims=1)
            transform = tf.gather(weights.edge, graphs.kinds[:, :, k])
            added = tf.linalg.matvec(transform, sent, transpose_a=True)
            return k + 1, tf.where((k < graphs.degrees)[..., None], total + added, total)

        _, message = tf.while_loop(
            lambda k, _: k < most, receive, (0, tf.zeros_like(x)),
            shape_invariants=(tf.TensorShape([]), shape),
        )  # fmt: skip
        x = new_states(weights, x, message)
    return x


def new_states(weights, x, message):
    """The GRU cell of all nodes."""
    width = x.shape[-1]
    own, message = tf.reshape(x, [-1, width]), tf.reshape(message, [-1, width])
    gates = tf.sigmoid(tf.concat([message, own], -1) @ weights.gates)
    reset, update = tf.split(gates, 2, -1)
    candidate = tf.tanh(tf.concat([message, reset * own], -1) @ weights.candidate)
    return tf.reshape((1.0 - update) * own + update * candidate, x.shape)


def graphs_by_kind(weights, graphs):
    """Another algorithm: sums of neighbours by kind of edge first, then one product for each."""
    x = graphs.embeddings
    count, nodes, width = x.shape
    most = graphs.kinds.shape[2]
    real = tf.sequence_mask(graphs.degrees, most)  # [count, nodes, most]
    for _ in range(ggnn.STEPS):
        sent = tf.gather(x, graphs.neighbours, batch_dims=1)  # [count, nodes, most, width]
        message = tf.zeros_like(x)
        for kind in range(weights.edge.shape[0]):
            chosen = tf.cast(real & (graphs.kinds == kind), x.dtype)[..., None]
            message += tf.reshape(
                tf.reshape(tf.reduce_sum(sent * chosen, 2), [-1, width]) @ weights.edge[kind],
                [count, nodes, width],
            )
        x = new_states(weights, x, message)
    return x


WORK = {
    "lstm": (lstm, (1, 16, 64, 256, 1024)),
    "fixed": (fixed, (1, 16, 64, 256)),
    "cheap": (cheap, (1, 16, 64, 256, 1024)),
    "tree": (tree, (1, 16, 64, 256)),
    "tree_list": (tree_list, (1, 16, 64, 256)),
    "node": (node, (1, 4, 16)),
    "graph": (graph, (1, 4, 16)),
}


def forward(weights, run, **options):
    return tf.function(lambda args: tf.reduce_sum(run(args) ** 2), **options)


def backward(weights, run, **options):
    """The loss and its gradients with respect to the weights."""

    @tf.function(**options)
    def go(args):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(args) ** 2)
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(g) for g in gradients]

    return go


KINDS = {
    "forward": (forward, {}),
    "backward": (backward, {}),
    "forward, jit": (forward, {"jit_compile": True}),
    "backward, jit": (backward, {"jit_compile": True}),
}


def run_all(fn, args):
    return [t.numpy() for t in tf.nest.flatten(fn(args))]


def child(options):
    """Measures one workload in this process: one JSON line for each kind."""
    work, batch = WORK[options.work[0]][0], options.batch[0]
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind, (make, settings) in KINDS.items():
        if kind not in options.kinds:
            continue
        compiled = {"most": STEPS} if "jit" in kind else {}
        contenders, args, weights = work(batch, np.random.default_rng(0), **compiled)
        names = [
            n
            for n in contenders
            if n not in options.without and not (compiled and n in NOT_COMPILED)
        ]
        fns, traced, values = {}, {}, {}
        for name in names:
            fn = make(weights, contenders[name], **settings)
            begin = time.perf_counter()
            try:
                values[name] = run_all(fn, args)
            except (ValueError, AssertionError, tf.errors.OpError) as why:
                print(json.dumps({"failed": name, "kind": kind, "why": str(why)[:200]}), flush=True)
                continue
            traced[name] = round(time.perf_counter() - begin, 2)
            fns[name] = fn
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        times = timing.interleaved(
            {name: lambda fn=fn, args=args: run_all(fn, args) for name, fn in fns.items()},
            seconds=options.seconds, least=3,
        )  # fmt: skip
        ours = values.get("tf_pfor", [])
        others = [v for n, v in values.items() if n not in ("tf_pfor", BOUND)]
        print(json.dumps({
            "work": options.work[0], "batch": batch, "kind": kind,
            "ms": {n: round(timing.milliseconds(times, n), 2) for n in fns},
            "first_call_s": traced,
            "ratio": {
                n: round(timing.ratio(times, "tf_pfor", n), 3)
                for n in fns if n != "tf_pfor" and "tf_pfor" in fns
            },
            "difference": max(
                (float(np.max(np.abs(a - b)) / (1e-30 + np.max(np.abs(b))))
                 for v in others for a, b in zip(ours, v)), default=None),
            "peak_mb": round((before - start) / 1024),
            **({"arithmetic_ms": round(arithmetic_ms(kind, args, weights[0]), 1)}
               if options.work[0] == "lstm" and not compiled else {}),
        }), flush=True)  # fmt: skip


def in_child(work, batch, options, without=(), kinds=None):
    """Runs ``child`` in a process of its own; None if it crashed."""
    command = [
        sys.executable, "-m", "benchmarks.while_loops", "--child", "--work", work,
        "--batch", str(batch), "--seconds", str(options.seconds), "--without", *without,
        "--kinds", *(kinds or options.kinds),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode and not lines:
        return None
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", nargs="+", choices=list(WORK))
    parser.add_argument("--batch", type=int, nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    asked, results = options.kinds, []
    for work in options.work or WORK:
        options.kinds = asked or [k for k in KINDS if "jit" not in k or work == "lstm"]
        for batch in options.batch or WORK[work][1]:
            if options.memory:
                memory(work, batch, options)
                continue
            found = in_child(work, batch, options, options.without)
            if found is None:
                print(json.dumps({"work": work, "batch": batch, "crashed": "tensorflow"}))
                found = in_child(work, batch, options, (*options.without, "tensorflow")) or []
            for line in found:
                print(json.dumps(line), flush=True)
            results += found
    if not (options.memory or options.work or options.batch or asked or options.without):
        timing.save("while_loops", [record for line in results for record in records(line)])


def records(line):
    """The records of a line that a child printed; a contender that fails has none."""
    if "work" not in line:
        return []
    workload = f"{line['work']} {line['batch']}, {line['kind']}"
    return [
        *timing.amounts(workload, "ms", line["ms"]),
        *timing.amounts(workload, "s to the first result", line["first_call_s"]),
        *(timing.record(workload, "time", v, who) for who, v in line["ratio"].items()),
        *(
            timing.record(workload, measure, line[measure], better=None)
            for measure in ("difference", "peak_mb", "arithmetic_ms")
            if measure in line
        ),
    ]


def memory(work, batch, options):
    """Growth of the resident set for forward + backward, each contender alone."""
    names = ("tf_pfor", "tensorflow", "by hand", "by hand, sorted", "map_fn")
    peaks = {}
    for name in names:
        others = [n for n in names if n != name]
        for line in in_child(work, batch, options, others, ["backward"]) or []:
            if "peak_mb" in line and line["ms"]:
                peaks[name] = line["peak_mb"]
    print(json.dumps({"work": work, "batch": batch, "kind": "peak MB", "peaks": peaks}), flush=True)


if __name__ == "__main__":
    main()
