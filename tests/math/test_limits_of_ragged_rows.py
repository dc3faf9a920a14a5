"""Kernels that take scalars or tensors of one shape, on variable-length rows, against a loop."""

import tensorflow as tf

from tests.comparisons import gradient_of
from tests.ways import errors_of, table_of

LENGTHS = [3, 0, 1, 4]
VALUES = tf.random.stateless_normal([8, 2], [1, 2])
LOW, HIGH = VALUES * 0.5 - 0.3, tf.abs(VALUES) * 0.6
clip = tf.raw_ops.ClipByValue


def ragged(values):
    return tf.RaggedTensor.from_row_lengths(values, LENGTHS)


def clipped(x, low, high):
    return clip(t=x, clip_value_min=low, clip_value_max=high)


def betainc(x, low, high):
    x, low, high = (tf.sigmoid(v) for v in (x, low, high))
    return tf.math.betainc(tf.stop_gradient(low) + 0.5, tf.stop_gradient(high) + 0.5, x)


# A limit of each row, or the same one for all: as a body takes it of its row.
NUMBERS = tf.constant([0.1, 0.2, 0.6, 0.4])
FORMS = {
    "shared scalar": lambda sign, number, values: tf.constant(0.4 * sign),
    "own scalar": lambda sign, number, values: number * sign,
    "own": lambda sign, number, values: values,
}


def limited(body, low, high):
    return lambda x, number, lows, highs: body(
        x, FORMS[low](-1.0, number, lows), FORMS[high](1.0, number, highs)
    )


def cast(x, *_):
    images = tf.image.convert_image_dtype(x, tf.uint8, saturate=True)
    return tf.cast(images, tf.float32) + tf.cast(tf.saturate_cast(x * 9e3, tf.int8), tf.float32)


def slope(x, number, lows, highs):
    return gradient_of(lambda: clipped(x, -number, highs) ** 3, x)


LIMITS = {
    f"{body.__name__}, {low}, {high}": limited(body, low, high)
    for body in (clipped, betainc)
    for low in FORMS
    for high in FORMS
}
CLOSE = {"tolerance": (1e-4, 1e-6)}
ROWS = tuple(map(ragged, (VALUES, LOW, HIGH)))
test_table_of_limits = table_of(
    {**LIMITS, "casts": cast, "slope": slope}, ROWS[0], NUMBERS, *ROWS[1:],
    ways=["eager", "function, around"], but={"function, around": ["casts"]}, **CLOSE,
)  # fmt: skip

# All rows must have the shape of a limit; the kernel repeats no element.
TWOS = tf.RaggedTensor.from_row_lengths(VALUES, [2] * 4)
LOWS = tf.reshape(LOW, [4, 2, 2])
OF_ONE_SHAPE = {
    "own": (clipped, (TWOS, LOWS, NUMBERS)),
    "shared": (lambda x, high: clipped(x, LOW[:2], high), (TWOS, NUMBERS)),
}
test_table_of_one_shape = table_of(OF_ONE_SHAPE, ways=["eager"], tolerance=(1e-7, 0.0))
ONE = tf.constant([1.0] * 4)
test_limits_of_another_shape = errors_of({
    "own": (clipped, (ROWS[0], LOWS, NUMBERS)),
    "shared": (OF_ONE_SHAPE["shared"][0], (ROWS[0], NUMBERS)),
    "of another length": (
        clipped, (ROWS[0], tf.RaggedTensor.from_row_lengths(VALUES, [1, 3, 0, 4]), ONE)),
    "of one element": (
        clipped, (ROWS[0], tf.RaggedTensor.from_row_lengths(VALUES[:4], [1] * 4), ONE)),
})  # fmt: skip


def reduced(body, form):
    """The sum of a cut row."""

    def one(x, k, high):
        limit = FORMS[form](1.0, high, tf.abs(x[:k]) * 0.6)
        return tf.reduce_sum(body(x[:k], tf.constant(-0.5), limit), 0)

    return one


test_table_of_compiled_limits = table_of(
    {f"{f.__name__}, {form}": reduced(f, form) for f in (clipped, betainc) for form in FORMS},
    tf.reshape(VALUES, [2, 4, 2]), tf.constant([3, 0]), tf.constant([0.3, 0.1]),
    ways=["compiled", "compiled around"], tolerance=(1e-4, 1e-8),
)  # fmt: skip
