"""Networks that decide while they run how long they go on, and recurrent layers of Keras."""

import keras
import numpy as np
import tensorflow as tf

from tests.programs.program import F8, given, integers, normal, program

NEVER = -1e3  # a logit of what must not be chosen
SQUARE = {"w": normal(3, 3)}


@program(
    x=normal(4, 2),
    weights={
        "update": normal(7, 3, scale=0.5),
        "reset": normal(7, 3, scale=0.5),
        "new": normal(7, 3, scale=0.5),
        "attention": normal(3, 3),
    },
)
def gru_with_attention(x, update, reset, new, attention):
    """Attends to the states so far, gathered from an array."""
    h = tf.zeros([3], F8)
    states = tf.TensorArray(F8, 5, element_shape=[3], clear_after_read=False).write(0, h)
    for t in tf.range(4):
        past = states.gather(tf.range(t + 1))
        scores = tf.linalg.matvec(past, tf.linalg.matvec(attention, h))
        context = tf.linalg.matvec(past, tf.nn.softmax(scores), transpose_a=True)
        joined = tf.concat([x[t], h, context[:2]], 0)
        z = tf.sigmoid(tf.linalg.matvec(update, joined, transpose_a=True))
        r = tf.sigmoid(tf.linalg.matvec(reset, joined, transpose_a=True))
        joined = tf.concat([x[t], r * h, context[:2]], 0)
        h = (1 - z) * h + z * tf.tanh(tf.linalg.matvec(new, joined, transpose_a=True))
        states = states.write(t + 1, h)
    return h


@program(x=normal(5, 3), length=given(0, 2, 4, 1, 3, 5, dtype=np.int32), weights=SQUARE)
def masked_attention(x, length, w):
    """Attends to the states so far, by a mask over a tensor that holds them."""
    states, h, t = tf.zeros([6, 3], F8), tf.zeros([3], F8), 0
    while t < length:
        scores = tf.where(tf.range(6) <= t, tf.linalg.matvec(states, h), tf.constant(NEVER, F8))
        context = tf.linalg.matvec(states, tf.nn.softmax(scores), transpose_a=True)
        h = tf.tanh(tf.linalg.matvec(w, h + context) + x[t])
        t += 1
        states = tf.tensor_scatter_nd_update(states, [[t]], h[None])
    return h, tf.reduce_sum(states, 0)


def attend_to_the_past(x, length, w):
    """Stacks a growing array in each trip."""
    h = x[0]
    states = tf.TensorArray(F8, 0, dynamic_size=True, element_shape=[3], clear_after_read=False)
    states = states.write(0, h)
    for t in tf.range(1, length):
        past = states.stack()
        weights = tf.nn.softmax(tf.linalg.matvec(past, h))
        h = tf.tanh(tf.linalg.matvec(w, x[t]) + tf.reduce_sum(weights[:, None] * past, 0))
        states = states.write(t, h)
    return states, h


@program(x=normal(4, 3), weights=SQUARE)
def growing_attention(x, w):
    """Attends to an array that grows in all rows alike."""
    states, h = attend_to_the_past(x, 4, w)
    return states.stack(), h


@program(x=normal(5, 3), length=given(1, 3, 5, 2, 4, 1, dtype=np.int32), weights=SQUARE)
def growing_attention_by_row(x, length, w):
    """Attends to an array that grows in some rows further than in others."""
    return attend_to_the_past(x, length, w)[1]


@program(x=normal(5, 3), weights=SQUARE)
def pointer_network(x, w):
    """Chooses each item once: Python's loop, which is unrolled."""
    h, used = tf.reduce_mean(x, 0), tf.zeros([5], tf.bool)
    order = tf.TensorArray(tf.int32, 5, element_shape=[])
    score = tf.constant(0.0, F8)
    for i in range(5):
        logits = tf.linalg.matvec(x, tf.linalg.matvec(w, h))
        logits = tf.where(used, tf.constant(-np.inf, F8), logits)
        chosen = tf.argmax(logits, output_type=tf.int32)
        score += logits[chosen] - tf.reduce_logsumexp(logits)
        used = used | (tf.range(5) == chosen)
        order = order.write(i, chosen)
        h = tf.tanh(h + tf.gather(x, chosen))
    return order.stack(), score


@program(x=normal(5, 3), weights=SQUARE)
def pointer_network_in_a_loop(x, w):
    """Chooses each item once: a loop of the graph."""
    h, used = tf.reduce_mean(x, 0), tf.zeros([5], tf.bool)
    order = tf.TensorArray(tf.int32, 5, element_shape=[])
    score = tf.constant(0.0, F8)
    for i in tf.range(5):
        logits = tf.linalg.matvec(x, tf.linalg.matvec(w, h))
        logits = tf.where(used, tf.constant(NEVER, F8), logits)
        chosen = tf.argmax(logits, output_type=tf.int32)
        score += tf.nn.log_softmax(logits)[chosen]
        used = tf.tensor_scatter_nd_update(used, [[chosen]], [True])
        order = order.write(i, chosen)
        h = tf.tanh(h + tf.gather(x, chosen))
    return order.stack(), score


@program(x=normal(4), weights={"w": normal(3, 4, 4), "readout": normal(3, 4, 3)})
def early_exit(x, w, readout):
    """Layers that are left out once the network is sure."""
    depth, probabilities = 0, tf.fill([3], tf.constant(1 / 3, F8))
    for i in range(3):
        if tf.reduce_max(probabilities) < 0.8:
            x = tf.nn.relu(tf.linalg.matvec(w[i], x)) + x
            logits = tf.linalg.matvec(readout[i], x, transpose_a=True)
            probabilities = tf.nn.softmax(logits)
            depth += 1
    return probabilities, depth


@program(x=normal(4), weights={"gate": normal(3, 4), "experts": normal(3, 4, 4)})
def mixture_of_experts(x, gate, experts):
    """The two best of three, by tf.switch_case."""
    shares, best = tf.math.top_k(tf.nn.softmax(tf.linalg.matvec(gate, x)), 2)

    def expert(k):
        return lambda: tf.nn.relu(tf.linalg.matvec(experts[k], x))

    out = tf.zeros([4], F8)
    for j in range(2):
        out += shares[j] * tf.switch_case(best[j], [expert(k) for k in range(3)])
    return out


@program(
    x=normal(3),
    code=integers(-1, 5, 5),
    length=integers(0, 6),
    weights={"w": normal(3, 3), "u": normal(3, 3)},
)
def modules_by_a_code(x, code, length, w, u):
    """tf.switch_case in a loop: a module network."""

    def modules(x):
        return [
            lambda: tf.tanh(tf.linalg.matvec(w, x)),
            lambda: x * tf.reduce_sum(w),
            lambda: x + tf.linalg.matvec(u, tf.sin(x)),
            lambda: -x,
        ]

    for i in tf.range(length):
        x = tf.switch_case(code[i], modules(x))  # the last one is the default
    return x


@program(
    x=normal(5, 3), weights={"near": normal(2, 3, 3, scale=0.4), "far": normal(2, 3, 3, scale=0.4)}
)
def wavenet(x, near, far):
    """Queues of dilated convolutions, which tf.scan carries in a tuple."""

    def step(carried, now):
        queues = []
        for i, queue in enumerate(carried[0]):
            queues.append(tf.concat([queue[1:], now[None]], 0))
            past = tf.linalg.matvec(far[i], queue[0])
            now = now + tf.tanh(past + tf.linalg.matvec(near[i], now))
        return tuple(queues), now

    empty = tuple(tf.zeros([2**i, 3], F8) for i in range(2))
    return tf.scan(step, x, initializer=(empty, tf.zeros([3], F8)))[1]


# ---------------------------------------------------------------------------
# Keras
# ---------------------------------------------------------------------------


def built(make, *shape):
    """Makes a layer for one row of a shape, the same in each call."""

    def layer():
        keras.utils.set_random_seed(0)
        made = make()
        made(np.zeros([1, *shape]))
        return made

    return {"layer": layer}


def of_one_row(outputs):
    return [x[0] for x in tf.nest.flatten(outputs)]


def masked(layer, x):
    """Steps without a number above -0.5 are left out."""
    return of_one_row(layer(x[None], mask=tf.reduce_any(x[None] > -0.5, -1)))


def gru(**options):
    return keras.layers.GRU(3, return_sequences=True, dtype="float64", **options)


def lstm(**options):
    return keras.layers.LSTM(3, return_state=True, dtype="float64", **options)


@program(x=normal(4, 2), made=built(lambda: lstm(return_sequences=True), 4, 2))
def keras_lstm_with_a_mask(x, layer):
    return masked(layer, x)


@program(x=normal(4, 2), made=built(lambda: lstm(go_backwards=True), 4, 2))
def keras_lstm_backwards(x, layer):
    return of_one_row(layer(x[None]))


@program(x=normal(4, 2), made=built(lambda: gru(reset_after=False), 4, 2))
def keras_gru_with_a_mask(x, layer):
    return masked(layer, x)


@program(
    x=normal(4, 2),
    made=built(lambda: keras.layers.Bidirectional(gru(), dtype="float64"), 4, 2),
)
def keras_bidirectional(x, layer):
    return masked(layer, x)


def stacked_cells():
    cells = [keras.layers.LSTMCell(3, dtype="float64"), keras.layers.GRUCell(2, dtype="float64")]
    cell = keras.layers.StackedRNNCells(cells, dtype="float64")
    return keras.layers.RNN(cell, return_state=True, dtype="float64")


@program(x=normal(4, 2), made=built(stacked_cells, 4, 2))
def keras_stacked_cells(x, layer):
    return of_one_row(layer(x[None]))


@program(
    x=normal(3, 5, 5, 1),
    made=built(
        lambda: keras.layers.ConvLSTM2D(2, 3, return_sequences=True, dtype="float64"), 3, 5, 5, 1
    ),
)
def keras_convolutional_lstm(x, layer):
    return of_one_row(layer(x[None]))


def dense_by_time():
    dense = keras.layers.Dense(2, activation="tanh", dtype="float64")
    return keras.layers.TimeDistributed(dense, dtype="float64")


@program(x=normal(4, 3), made=built(dense_by_time, 4, 3))
def keras_time_distributed(x, layer):
    return of_one_row(layer(x[None]))


def lstm_cell():
    keras.utils.set_random_seed(0)
    cell = keras.layers.LSTMCell(3, dtype="float64")
    cell.build([None, 2])
    return cell


@program(x=normal(5, 2), length=integers(0, 6), made={"cell": lstm_cell})
def keras_cell_in_a_loop(x, length, cell):
    state = [tf.zeros([1, 3], F8), tf.zeros([1, 3], F8)]
    outputs = tf.TensorArray(F8, 5, element_shape=[3]).unstack(tf.zeros([5, 3], F8))
    for t in tf.range(length):
        output, state = cell(x[t][None], state)
        outputs = outputs.write(t, output[0])
    return outputs.stack(), state
