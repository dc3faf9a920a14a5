"""Models whose structure follows the example, batched and one example at a time."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import comparisons
from tests.comparisons import pairwise, value_and_gradient

assert_close = functools.partial(comparisons.assert_close, rtol=2e-5, atol=2e-6)  # of float32
SIZE = 4
LETTERS = " abcdefghijklmnopqrstuvwxyz"
SENTENCES = [
    ["a", "dog", "sees", "the", "old", "cat"],
    ["birds", "sing"],
    ["the", "cat", "that", "the", "dog", "sees", "sleeps"],
    ["quiet"],
]
FREQUENT = ["a", "the", "dog", "cat", "sees"]
TREES = [((0, 1), (2, (3, 1))), 4, (1, (0, 2)), (((2, 2), 0), (1, 3)), (3, 0)]


class Weights:
    """Variables by name, made when they are first asked for."""

    def __init__(self):
        self.made = {}

    def __call__(self, name, *shape):
        if name not in self.made:
            seed = [len(self.made), 7]
            self.made[name] = tf.Variable(tf.random.stateless_normal(shape, seed) * 0.7)
        return self.made[name]

    @property
    def all(self):
        return list(self.made.values())


def assert_as_one_by_one(fn, examples, weights, **options):
    """Values, and the gradients by all weights of the sum of them."""

    def derivative(run):
        with tf.GradientTape() as tape:
            rows = run()
            total = tf.add_n([tf.reduce_sum(r) for r in rows])
        return total, tape.gradient(total, weights.all, unconnected_gradients="zero")

    batch = tf_pfor.batched(fn, **options)

    def rows_of_batch():
        found = batch(examples)
        return [found[i] for i in range(len(examples))]

    rows = [fn(e) for e in examples]
    pairwise(assert_close, rows_of_batch(), rows)
    expected = derivative(lambda: [fn(e) for e in examples])
    for _ in range(2):
        found = derivative(rows_of_batch)
        for f, e in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            assert_close(tf.convert_to_tensor(f), tf.convert_to_tensor(e))


def lstm(weights, name, inputs):
    """A step of an LSTM, as a cell: (state, x) to a state (c, h)."""

    @tf_pfor.cell
    def step(state, x):
        c, h = state
        matrix = weights(name, inputs + SIZE, 4 * SIZE)
        gates = tf.linalg.matvec(matrix, tf.concat([x, h], 0), transpose_a=True)
        i, f, o, u = tf.split(gates, 4)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(u)
        return c, tf.sigmoid(o) * tf.tanh(c)

    return step


nothing = lambda: (tf.zeros([SIZE]), tf.zeros([SIZE]))


# -- A tagger: LSTMs over the letters of rare words, and over words in both directions -------------


def tagger():
    """A function of a sentence: the logits of 3 tags of each word; its weights."""
    weights = Weights()
    of_letters = lstm(weights, "letters", SIZE)
    forward, backward = lstm(weights, "forward", SIZE), lstm(weights, "backward", SIZE)

    def run(step, inputs):
        states = [nothing()]
        for x in inputs:
            states.append(step(states[-1], x))
        return [h for _, h in states[1:]]

    def vector(word):
        if word in FREQUENT:
            return tf.gather(weights("words", len(FREQUENT), SIZE), FREQUENT.index(word))
        table = weights("alphabet", len(LETTERS), SIZE)
        return run(of_letters, [tf.gather(table, LETTERS.index(c)) for c in word])[-1]

    def logits(sentence):
        vectors = [vector(word) for word in sentence]
        onward, back = run(forward, vectors), run(backward, vectors[::-1])[::-1]
        both = tf.stack([tf.concat(pair, 0) for pair in zip(onward, back)])
        return both @ weights("tags", 2 * SIZE, 3)

    return logits, weights


@pytest.mark.parametrize("schedule", ["agenda", "depth"])
def test_a_tagger(schedule):
    logits, weights = tagger()
    assert_as_one_by_one(logits, SENTENCES, weights, schedule=schedule)


def test_the_loss_of_a_tagger():
    logits, weights = tagger()
    rng = np.random.default_rng(0)
    tagged = [(s, rng.integers(3, size=len(s)).tolist()) for s in SENTENCES]

    def loss(example):
        sentence, tags = example
        per_word = tf.nn.sparse_softmax_cross_entropy_with_logits(tags, logits(sentence))
        return tf.reduce_mean(per_word)

    assert_as_one_by_one(loss, tagged, weights)


# -- A parser: a stack and a queue; actions are given, or chosen by their scores -------------------

SHIFT, LEFT, RIGHT = range(3)


class Parser:
    """A shift-reduce parser (Dyer and others, 2015), with sums in place of LSTMs of stacks."""

    def __init__(self):
        self.weights = weights = Weights()

        @tf_pfor.cell
        def reduced(head, child, action):
            matrix = tf.gather(weights("reduce", 3, 2 * SIZE, SIZE), action)
            return tf.tanh(tf.linalg.matvec(matrix, tf.concat([head, child], 0), transpose_a=True))

        @tf_pfor.cell
        def scores(first, second, following):
            seen = tf.concat([first, second, following], 0)
            return tf.linalg.matvec(weights("score", 3 * SIZE, 3), seen, transpose_a=True)

        self.reduced, self.scores = reduced, scores

    def word(self, number):
        return tf.gather(self.weights("words", 5, SIZE), number)

    def parse(self, words, choose):
        """The loss and the actions; ``choose``: of scores and allowed actions, an action."""
        queue, stack, actions = [self.word(w) for w in words], [], []
        loss, none = tf.constant(0.0), tf.zeros([SIZE])
        while queue or len(stack) > 1:
            allowed = [SHIFT] * bool(queue) + [LEFT, RIGHT] * (len(stack) > 1)
            first, second = [none, none, *stack][:-3:-1]
            scores = self.scores(first, second, queue[0] if queue else none)
            action = choose(scores, allowed, len(actions))
            loss += tf.reduce_logsumexp(tf.gather(scores, allowed)) - scores[action]
            actions.append(action)
            if action == SHIFT:
                stack.append(queue.pop(0))
                continue
            top, below = stack.pop(), stack.pop()
            pair = (top, below) if action == LEFT else (below, top)  # head, child
            stack.append(self.reduced(*pair, tf.constant(action)))
        return loss, tf.reduce_sum(stack[0]), actions

    def loss(self, example):
        """The loss of a sentence whose actions are given: no value is asked for."""
        words, given = example
        return self.parse(words, lambda scores, allowed, step: given[step])[:2]

    def best(self, words):
        """The actions of highest scores: each step asks for a value."""
        choose = lambda scores, allowed, step: allowed[int(tf.argmax(tf.gather(scores, allowed)))]
        loss, vector, actions = self.parse(words, choose)
        return loss, vector, tf.constant(actions)


def random_actions(count, rng):
    """Actions that parse a sentence of so many words."""
    actions, queue, stack = [], count, 0
    while queue or stack > 1:
        allowed = [SHIFT] * (queue > 0) + [LEFT, RIGHT] * (stack > 1)
        action = int(rng.choice(allowed))
        queue, stack = (queue - 1, stack + 1) if action == SHIFT else (queue, stack - 1)
        actions.append(action)
    return actions


def test_a_parser_of_given_actions():
    parser, rng = Parser(), np.random.default_rng(1)
    examples = []
    for count in (1, 4, 2, 6, 3):
        words = rng.integers(5, size=count).tolist()
        examples.append((words, random_actions(count, rng)))

    assert_as_one_by_one(lambda e: tf.stack(parser.loss(e)), examples, parser.weights)


def test_a_parser_that_chooses_its_actions():
    parser, rng = Parser(), np.random.default_rng(2)
    sentences = [rng.integers(5, size=count).tolist() for count in (3, 1, 5, 2)]
    assert_as_one_by_one(lambda s: tf.stack(parser.best(s)[:2]), sentences, parser.weights)
    _, _, actions = tf_pfor.batched(parser.best)(sentences)
    assert actions.to_list() == [parser.best(s)[2].numpy().tolist() for s in sentences]


# -- A convolution over trees, of random depth -----------------------------------------------------


def test_a_convolution_over_trees_of_random_depth():
    """Mou and others, 2016: a node sees its children; each example has so many layers."""
    weights, rng = Weights(), np.random.default_rng(3)

    @tf_pfor.cell
    def window(own, left, right, layer):
        matrix = tf.gather(weights("window", 3, 3 * SIZE, SIZE), layer)
        seen = tf.concat([own, left, right], 0)
        return tf.tanh(tf.linalg.matvec(matrix, seen, transpose_a=True))

    def nodes(tree, found):
        """The nodes below ``tree``, as (word, numbers of the children); returns its number."""
        if isinstance(tree, tuple):
            children = [nodes(t, found) for t in tree]
            found.append((None, children))
        else:
            found.append((tree, []))
        return len(found) - 1

    def convolved(example):
        tree, depth = example
        found = []
        nodes(tree, found)
        table, inner, none = weights("words", 5, SIZE), weights("inner", SIZE), tf.zeros([SIZE])
        xs = [inner + 0.0 if word is None else tf.gather(table, word) for word, _ in found]
        for layer in range(depth):
            of_children = [[xs[c] for c in children] or [none, none] for _, children in found]
            xs = [window(x, *c, tf.constant(layer)) for x, c in zip(xs, of_children)]
        return tf.reduce_max(tf.stack(xs), 0)

    examples = [(tree, int(rng.integers(1, 4))) for tree in TREES]
    assert_as_one_by_one(convolved, examples, weights)


# -- A search that stops early, by value -----------------------------------------------------------

END, LONGEST = 0, 6


def test_a_beam_search_that_stops_when_its_best_text_ends():
    weights = Weights()
    step = lstm(weights, "step", SIZE)

    def grown(beam):
        """All texts that are one word longer, and their scores."""
        for score, words, state in beam:
            if words[-1] == END and len(words) > 1:
                yield score, words, state
                continue
            state = step(state, tf.gather(weights("words", 5, SIZE), words[-1]))
            logits = tf.linalg.matvec(weights("out", SIZE, 5) * 3.0, state[1], transpose_a=True)
            following = tf.nn.log_softmax(logits)
            for word in range(5):
                yield score + following[word], [*words, word], state

    def best(start):
        beam = [(tf.constant(0.0), [END], (tf.zeros([SIZE]), start))]
        for _ in range(LONGEST):
            beam = sorted(grown(beam), key=lambda one: -float(one[0]))[:2]
            if beam[0][1][-1] == END:
                break
        return beam[0][0], tf.constant(beam[0][1])

    starts = [tf.random.stateless_normal([SIZE], [i, 5]) * 3.0 for i in range(5)]
    texts = [best(s)[1].numpy().tolist() for s in starts]
    assert len({len(t) for t in texts}) > 1  # some stop early
    assert tf_pfor.batched(best)(starts)[1].to_list() == texts
    assert_as_one_by_one(lambda s: best(s)[0], starts, weights)


def test_layers_that_are_left_early_where_the_answer_is_sure():
    weights = Weights()

    @tf_pfor.cell
    def layer(x, number):
        matrix = tf.gather(weights("layers", 5, SIZE, SIZE), number)
        return x + tf.tanh(tf.linalg.matvec(matrix, x))

    def answer(x):
        count = 0
        while count < 5:
            x = layer(x, tf.constant(count))
            count += 1
            if tf.reduce_max(tf.nn.softmax(x)) > 0.5:
                break
        return x, count

    rows = [tf.random.stateless_normal([SIZE], [i, 6]) * (0.1 + 0.15 * i) for i in range(6)]
    counts = [answer(x)[1] for x in rows]
    assert len(set(counts)) > 2
    assert tf_pfor.batched(answer)(rows)[1].numpy().tolist() == counts
    assert_as_one_by_one(lambda x: answer(x)[0], rows, weights)


# -- A Tree-LSTM (Tai, Socher and Manning, 2015), trained ------------------------------------------


class TreeLSTM:
    """Reads an arithmetic tree, and says which of 3 classes it is of."""

    def __init__(self, unit):
        self.weights = Weights()
        self.leaf, self.node = unit(self._leaf), unit(self._node)
        self.loss((TREES[0], 0))  # makes the variables, in one order

    def _leaf(self, word):
        x = tf.gather(self.weights("words", 5, 3 * SIZE), word)
        i, o, u = tf.split(x, 3)
        c = tf.sigmoid(i) * tf.tanh(u)
        return c, tf.sigmoid(o) * tf.tanh(c)

    def _node(self, left, right):
        both = tf.concat([left[1], right[1]], 0)
        gates = tf.linalg.matvec(self.weights("node", 2 * SIZE, 5 * SIZE), both, transpose_a=True)
        i, f, g, o, u = tf.split(gates, 5)
        c = tf.sigmoid(i) * tf.tanh(u) + tf.sigmoid(f) * left[0] + tf.sigmoid(g) * right[0]
        return c, tf.sigmoid(o) * tf.tanh(c)

    def state(self, tree):
        if isinstance(tree, tuple):
            return self.node(*map(self.state, tree))
        return self.leaf(tf.constant(tree))

    def loss(self, example):
        tree, label = example
        logits = tf.linalg.matvec(
            self.weights("out", SIZE, 3), self.state(tree)[1], transpose_a=True
        )
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)

    def train(self, losses, steps):
        """The losses while Adam trains the model."""
        optimizer, seen = tf.keras.optimizers.Adam(0.05), []
        for _ in range(steps):
            loss, gradients = value_and_gradient(lambda: tf.reduce_mean(losses()), self.weights.all)
            # Keras squares rows of an index on their own, and batched() has added some of them.
            gradients = [tf.convert_to_tensor(g) for g in gradients]
            optimizer.apply_gradients(zip(gradients, self.weights.all))
            seen.append(float(loss))
        return seen


@pytest.mark.parametrize("unit", [tf_pfor.cell, lambda f: f], ids=["cell", "ops"])
def test_a_tree_lstm_is_trained(unit):
    examples = [(tree, i % 3) for i, tree in enumerate(TREES)]
    ours, theirs = TreeLSTM(unit), TreeLSTM(lambda f: f)
    batch = tf_pfor.batched(ours.loss)
    found = ours.train(lambda: batch(examples), 8)
    expected = theirs.train(lambda: tf.stack([theirs.loss(e) for e in examples]), 8)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert found[-1] < 0.8 * found[0]
