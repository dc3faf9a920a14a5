"""Random programs of loops, conditionals and maps in each other, with gradients in the body."""

import random

import numpy as np
import tensorflow as tf

from tests.cases import table
from tests.comparisons import assert_close, by_row, compare, gradient_of, mapped

W = tf.Variable(np.random.default_rng(0).normal(size=[3, 3]) * 0.5)
ROWS = 4

# A program is a list of statements.
# - ("step", which, c)                      s becomes STEPS[which](s, c)
# - ("while", counter, bound, program, keeps an array, leaves early)
# - ("cond", predicate, program, program)
# - ("map", program)                        of the rows of [s, s / 2]

STEPS = {
    "cell": lambda s, c: tf.tanh(tf.linalg.matvec(W, s) + c),
    "cosine": lambda s, c: s * tf.cos(s) + c,
    "sine": lambda s, c: tf.sin(s) + c,
    "square": lambda s, c: s * s * 0.5 + c,
}
BOUNDS = {
    "k": lambda names, t: names["k"],
    "k - t": lambda names, t: names["k"] - t,
    "m": lambda names, t: names["m"],
    "m - t": lambda names, t: names["m"] - t,
    "two": lambda names, t: tf.constant(2),
}
PREDICATES = {
    "a sum": lambda names, t, s: tf.reduce_sum(s) < 0.2,
    "a value": lambda names, t, s: s[0] > 0.1,
    "k > m": lambda names, t, s: names["k"] > names["m"],
    "k + t is even": lambda names, t, s: (names["k"] + t) % 2 == 0,
    "t > 0": lambda names, t, s: t > 0,
}


def program(choose, depth, names=()):
    """A list of one or two random statements, nested at most so deep."""
    return [statement(choose, depth, names) for _ in range(choose.randint(1, 2))]


def statement(choose, depth, names):
    kind = choose.random()
    if depth == 0 or kind < 0.2:
        return "step", choose.choice(sorted(STEPS)), round(choose.uniform(-0.5, 0.5), 2)
    if kind < 0.6:
        counter = f"t{depth}"
        inner = program(choose, depth - 1, (*names, counter))
        bound = choose.choice(sorted(BOUNDS))
        return "while", counter, bound, inner, choose.random() < 0.25, choose.random() < 0.2
    if kind < 0.9:
        branches = [program(choose, depth - 1, names) for _ in range(2)]
        return "cond", choose.choice(sorted(PREDICATES)), *branches
    return "map", program(choose, 0)


def run(statements, s, names):
    """The last value of ``s``, [3]; ``names`` holds k, m and the counters of loops around."""
    t = list(names.values())[-1] if len(names) > 2 else tf.constant(1)
    for kind, *parts in statements:
        if kind == "step":
            s = STEPS[parts[0]](s, parts[1])
        elif kind == "while":
            s = run_while(*parts, s, names, t)
        elif kind == "cond":
            predicate, then, other = parts
            taken = PREDICATES[predicate](names, t, s)
            s = tf.cond(
                taken,
                lambda s=s, then=then: run(then, s, names),
                lambda s=s, other=other: run(other, s, names),
            )
        else:
            rows = tf.map_fn(lambda r, parts=parts: run(parts[0], r, names), tf.stack([s, s / 2]))
            s = tf.reduce_sum(rows, 0)
    return s


def run_while(counter, bound, inner, keeps, early, s, names, t):
    limit = BOUNDS[bound](names, t)
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))

    def goes_on(t, s, *_):
        return (t < limit) & (s[0] < 0.8) if early else t < limit

    def body(t, s, *array):
        new = run(inner, s, {**names, counter: t})
        return t + 1, new, *(a.write(t, new * 0.5 + s) for a in array)

    _, s, *arrays = tf.while_loop(goes_on, body, (0, s, array) if keeps else (0, s))
    return s + sum(tf.reduce_sum(a.stack(), 0) * 0.3 for a in arrays) if keeps else s


# The gradient of a random program, as a function of a row (k, m, x).
gradients = lambda seed, depth: gradients_of(program(random.Random(seed), depth))


def gradients_of(statements):
    def one(k, m, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(run(statements, x, {"k": k, "m": m}) ** 2)
        return tape.gradient(y, [x, W], unconnected_gradients="zero")

    return one


def second_gradients_of(statements):
    first = gradients_of(statements)

    def one(k, m, x):
        return gradient_of(
            lambda: tf.reduce_sum(first(k, m, x)[0] ** 2), [x, W], unconnected_gradients="zero"
        )

    return one


def check(seed, strategy, depth=2):
    check_rows(gradients(seed, depth), seed, strategy)


def check_rows(one, seed, strategy):
    rng = np.random.default_rng(seed)
    k, m = (tf.constant(rng.integers(0, 4, ROWS), tf.int32) for _ in range(2))
    x = tf.constant(rng.normal(size=[ROWS, 3]))
    compare(one, k, m, x, atol=1e-10, while_strategy=strategy)


def check_two_maps(seed, n=3):
    """A map over (k, m) of a map over rows of x, with the gradient in the body of both."""
    rng = np.random.default_rng(seed)
    k = tf.constant(rng.integers(0, 4, [3, n]), tf.int32)
    m = tf.constant(rng.integers(0, 4, [3]), tf.int32)
    x = tf.constant(rng.normal(size=[3, n, 3]))
    one = gradients(seed, 2)

    @tf.function(autograph=False)
    def of_both():
        return mapped(lambda k, m, x: mapped(lambda k, x: one(k, m, x), k, x), k, m, x)

    expected = by_row(one, k, m[:, None] + 0 * k, x, maps=2)
    assert_close(of_both(), expected, atol=1e-10)


CELL, COSINE = ("step", "cell", -0.1), ("step", "cosine", 0.2)


def check_second(statements, seed=1):
    check_rows(second_gradients_of(statements), seed, "auto")


SHARED = [("while", "t1", "two", [("cond", "t > 0", [COSINE], [CELL])], False, False)]
# The tensors that gradients of maps in branches keep are looked for in circles.
LOOP = ("while", "t1", "k", [CELL], True, False)
IN_BRANCHES = [("cond", "a value", [("map", [COSINE])], [("map", [CELL]), LOOP])]
test_table_of_programs = table({
    "some": (lambda case: check(*case), [(1, "compact"), (5, "mask"), (13, "auto")]),
    "in two maps": (check_two_maps, [0, 17]),
    "more in two maps": (check_two_maps, [3, 4, 5, 9, 11, 12, 16, 24, 27, 30, 35, 43]),
    "more": (check, range(12), ["compact", "mask"]),
    "deep": (lambda seed: check(seed, "auto", 3), [101, 104, 105, 107, 202]),
    "second gradients of what all rows share": (lambda: check_second(SHARED),),
    "second gradients of maps in branches": (lambda: check_second(IN_BRANCHES),),
    "second gradients": (
        lambda seed: check_second(program(random.Random(seed), 2), seed),
        [1, 3, 9, 12, 13, 16, 17, 19, 20],
    ),
})  # fmt: skip
