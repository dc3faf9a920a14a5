"""The canonical form of graphs, and that tf_pfor emits the same graph each time."""

import contextlib
import functools
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.emitted import canonical, counts, digest
from tests.emitted.__main__ import difference
from tests.emitted.cases import cases, emitted

X = tf.TensorSpec([3])


def graph_of(fn, *specs, **options):
    """The ``ConcreteFunction`` of a function of one vector, or of what ``specs`` say."""
    return tf.function(fn, autograph=False, **options).get_concrete_function(*(specs or [X]))


of = lambda fn, *specs: digest(graph_of(fn, *specs))


def nested(scope, factor=2.0, step=1, clip=True, power=3.0):
    """A body with a function in each place where a graph may have one."""

    @tf.custom_gradient
    def clipped(x):
        return x * factor, lambda dy: tf.clip_by_value(dy, -1.0, 1.0) if clip else dy

    def fn(x):
        with tf.name_scope(scope):
            inner = tf.function(lambda y: tf.cond(y[0] > 0, lambda: clipped(y), lambda: y**power))
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = inner(x)
                body = lambda i, v: (i + step, tf.sin(v))
                _, z = tf.while_loop(lambda i, _: i < 4, body, (0, y))
                case = tf.switch_case(tf.cast(x[1], tf.int32), [lambda: z, lambda: -z])
            return tape.gradient(case, x), z

    return fn


def test_names_leave_no_trace():
    first = graph_of(nested("a"))
    for k in range(3):
        tf.function(lambda x, k=k: x + k).get_concrete_function(X)  # counters go on
    second = graph_of(nested("another/scope"))
    names = [[f.signature.name for f in g.graph.as_graph_def().library.function]
             for g in (first, second)]  # fmt: skip
    assert sorted(names[0]) != sorted(names[1])
    assert canonical(first) == canonical(second)
    text = "\n".join(canonical(first))
    assert not [name for name in ("scope", "__inference", "CustomGradient") if name in text]


@pytest.mark.parametrize("change", [{"factor": 2.5}, {"step": 2}, {"clip": False}, {"power": 2.0}])
def test_a_change_inside_of_a_function_shows(change):
    assert of(nested("a")) != of(nested("a", **change))


def test_the_order_of_creation_leaves_no_trace():
    def one(x):
        a, b = tf.exp(x), tf.sin(x)
        return a - b

    def other(x):
        b = tf.sin(x)
        tf.cos(b)  # nobody reads it
        return tf.exp(x) - b

    assert of(one) == of(other)
    assert of(one) != of(lambda x: tf.sin(x) - tf.exp(x))  # the inputs of an op have an order


BASE = (lambda x: tf.reduce_sum(x * [1.0, 2.0, 3.0], 0), X)
OTHERS = {
    "a constant": (lambda x: tf.reduce_sum(x * [1.0, 2.0, 4.0], 0), X),
    "an attribute": (lambda x: tf.reduce_sum(x * [1.0, 2.0, 3.0], 0, keepdims=True), X),
    "an op": (lambda x: tf.reduce_max(x * [1.0, 2.0, 3.0], 0), X),
    "an edge": (lambda x: tf.reduce_sum(x * x, 0), X),
    "the shape of a constant": (lambda x: tf.reduce_sum(x * [[1.0, 2.0, 3.0]], 0), X),
    "the shape of an input": (BASE[0], tf.TensorSpec([None])),
    "the dtype": (lambda x: tf.reduce_sum(x * [1.0, 2.0, 3.0], 0), tf.TensorSpec([3], tf.float64)),
    "another input": (lambda x, y: BASE[0](x), X, X),
    "another result": (lambda x: (BASE[0](x), x), X),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_change_shows(what):
    assert of(*BASE) == of(*BASE)
    assert of(*BASE) != of(*OTHERS[what])


def test_constants_are_told_apart():
    values = [0.0, -0.0, [0.0], np.nan, [[], []], [[]], "0", ["0"], "", [b"a", b"b"], [b"ab", b""]]
    found = [of(lambda _, x=x: tf.constant(x)) for x in (*values, 0)]
    assert len({*found}) == len(found)


def test_how_a_constant_is_written_leaves_no_trace():
    with tf.Graph().as_default() as graph:
        tf.constant(np.ones(4, np.float32))
    made = graph.as_graph_def()
    made.node[0].attr["value"].tensor.tensor_content = b""
    made.node[0].attr["value"].tensor.float_val.append(1.0)  # the last one is repeated
    with tf.Graph().as_default() as again:
        tf.import_graph_def(made)
    assert digest(again) == digest(graph)


def test_control_inputs_are_a_set():
    def grouped(order, waits_for):
        with tf.Graph().as_default() as graph:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="v")
            add = functools.partial(tf.raw_ops.AssignAddVariableOp, resource=handle)
            ops = {k: add(value=1.0 + k) for k in order}
            with tf.control_dependencies([ops[k] for k in waits_for]):
                tf.no_op()
        return digest(graph)

    assert grouped([0, 1], [0, 1]) == grouped([1, 0], [0, 1]) == grouped([1, 0], [1, 0])
    assert grouped([0, 1], [0, 1]) != grouped([0, 1], [0])


def test_the_order_of_effects_shows():
    variable = tf.Variable(0.0)
    added = lambda *factors: lambda x: [variable.assign_add(x[0] * factor) for factor in factors]
    assert of(added(2.0, 3.0)) == of(added(2.0, 3.0)) != of(added(3.0, 2.0))


def test_effects_and_draws_count():
    def draws(count):
        made = [tf.random.uniform([3], seed=1) for _ in range(count)]
        return made[0] + made[-1]

    assert of(lambda x: x) != of(lambda x: tf.debugging.assert_all_finite(x, "") is None or x)
    assert of(lambda x: draws(1)) != of(lambda x: draws(2))


def test_identities_are_kept_as_numbers():
    handle = lambda name: tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name)
    beside = lambda *names: lambda x: [handle(name) for name in names]
    inside = lambda *names: lambda x: [tf.function(lambda: handle(names[0]))(), handle(names[1])]
    for made in beside, inside:
        assert of(made("a", "a")) == of(made("b", "b")) != of(made("a", "b"))


def test_captured_values_count():
    large = [tf.constant(np.full(1000, k, np.float32)) for k in (1, 1, 2)]
    found = [of(functools.partial(lambda c, x: c[0] + x, c)) for c in large]
    assert found[0] == found[1] != found[2]


def test_loops_of_the_first_version():
    def made(limit):
        with tf.Graph().as_default() as graph:
            control = tf.compat.v1.control_flow_v2_enabled()
            tf.compat.v1.disable_control_flow_v2()
            with contextlib.ExitStack() as after:
                if control:
                    after.callback(tf.compat.v1.enable_control_flow_v2)
                tf.while_loop(lambda i: i < limit, lambda i: i + 1, [0])
        assert "NextIteration" in {op.type for op in graph.get_operations()}
        return digest(graph)

    assert made(3) == made(3) != made(4)


def test_differences_are_counted(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("\n".join(canonical(graph_of(lambda x: tf.exp(x) + tf.exp(2 * x)))))
    b.write_text("\n".join(canonical(graph_of(lambda x: tf.sin(tf.exp(x))))))
    assert difference(a, a) == ["as many of each"]
    found = difference(a, b)
    assert {"-1 Exp", "+1 Sin"} <= {*found}
    assert counts(canonical(graph_of(nested("a"))))["StatelessWhile"] >= 1


def test_a_case_is_emitted():
    found = emitted(cases()["sample:MatMul"])
    assert counts(found.lines)["BatchMatMulV2"] == 1


# -- Emission --------------------------------------------------------------------------------------

SHARES = {"sample:": 37, "cell:": 179}  # one in so many
PROGRAMS = (
    "bubble_sort, values", "beam_search, values", "keras_cell_in_a_loop, tape around",
    "keras_convolutional_lstm, two maps", "keras_lstm_with_a_mask, compiled",
    "stack_machine, values",
)  # fmt: skip


def names():
    """Samples and cells of all topics; programs whose variables once followed a set's order."""
    found = [f"program:{name}" for name in PROGRAMS]
    for kind, share in SHARES.items():
        found += [name for name in cases() if name.startswith(kind)][::share]
    return found


def test_emission_is_deterministic():
    """The same graphs in two processes with other hashes and addresses, and twice in each."""
    command = [sys.executable, "-m", "tests.emitted", "--digests", "--twice", "--file", "-"]
    asked = names()
    with contextlib.ExitStack() as ends:
        processes = [
            ends.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONHASHSEED": seed},
                    text=True,
                )
            )
            for seed in ("1", "2")
        ]
        for p in processes:
            p.stdin.write("\n".join(asked))
            p.stdin.close()
        results = [p.stdout.read().splitlines() for p in processes]
    assert [p.returncode for p in processes] == [0, 0]
    first = results[0][: len(asked)]
    assert [line[34:] for line in first] == asked
    graphs = [line for line in first if len(line.split()[0]) == 32]
    assert len(graphs) >= len(asked) - 3  # a few cells are refused
    for again in (results[0][len(asked) :], results[1][: len(asked)], results[1][len(asked) :]):
        assert again == first
