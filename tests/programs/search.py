"""Searching, sorting, parsing, decoding; graphs, integers and strings."""

import numpy as np
import tensorflow as tf

from tests.programs.program import F8, chances, given, integers, normal, program, uniform

NEVER = -1e3  # a logarithm of a probability


def integer_array(size, value):
    return tf.TensorArray(tf.int32, size, element_shape=[]).unstack(tf.fill([size], value))


@program(
    h=normal(4),
    weights={"embedding": normal(7, 4), "w": normal(4, 4), "out": normal(4, 7)},
)
def greedy_decoding(h, embedding, w, out):
    """Words go to a growing array until the end of the sentence."""
    word, count, done = tf.constant(1), tf.constant(0), tf.constant(False)
    words = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[])
    score = tf.constant(0.0, F8)
    while not done and count < 9:
        h = tf.tanh(tf.gather(embedding, word) + tf.linalg.matvec(w, h))
        logits = tf.linalg.matvec(out, h, transpose_a=True)
        word = tf.argmax(logits, output_type=tf.int32)
        score += tf.nn.log_softmax(logits)[word]
        words = words.write(count, word)
        done = word == 0
        count += 1
    sentence = words.stack()
    rest = tf.fill([9 - tf.shape(sentence)[0]], -1)
    return score, count, tf.ensure_shape(tf.concat([sentence, rest], 0), [9])


@program(
    h=normal(4),
    weights={"embedding": normal(6, 4), "w": normal(4, 4), "out": normal(4, 6, scale=2.0)},
)
def beam_search(h, embedding, w, out):
    """Three sentences of at most seven words, until all have ended."""
    beams, words, length = 3, 6, 7
    h = tf.tile(h[None], [beams, 1])
    scores = tf.constant([0.0, NEVER, NEVER], F8)
    sentences, last = tf.zeros([beams, length], tf.int32), tf.ones([beams], tf.int32)
    ended = tf.zeros([beams], tf.bool)
    only_the_end = tf.constant([0.0] + [NEVER] * (words - 1), F8)
    for t in tf.range(length):
        if tf.reduce_all(ended):
            break
        new = tf.tanh(tf.gather(embedding, last) + h @ w)
        logits = tf.where(ended[:, None], only_the_end[None], tf.nn.log_softmax(new @ out))
        scores, best = tf.math.top_k(tf.reshape(scores[:, None] + logits, [-1]), beams)
        parents, last = best // words, best % words
        h, sentences = tf.gather(new, parents), tf.gather(sentences, parents)
        ended = tf.gather(ended, parents) | (last == 0)
        places = tf.stack([tf.range(beams), tf.fill([beams], t)], 1)
        sentences = tf.tensor_scatter_nd_update(sentences, places, last)
    return scores, sentences


@program(
    a=integers(0, 3, 5),
    a_length=given(5, 0, 3, 1, 4, 2, dtype=np.int32),
    b=integers(0, 3, 5),
    b_length=given(2, 3, 0, 5, 4, 1, dtype=np.int32),
)
def edit_distance(a, a_length, b, b_length):
    """Arrays in an array, of lengths that rows choose."""
    options = {"size": 6, "clear_after_read": False}
    table = tf.TensorArray(tf.int32, element_shape=[6], **options).write(0, tf.range(6))
    for i in tf.range(1, a_length + 1):
        above = table.read(i - 1)
        line = tf.TensorArray(tf.int32, element_shape=[], **options).unstack(tf.fill([6], 99))
        line = line.write(0, i)
        for j in tf.range(1, b_length + 1):
            change = above[j - 1] + tf.where(a[i - 1] == b[j - 1], 0, 1)
            line = line.write(j, tf.minimum(tf.minimum(above[j], line.read(j - 1)) + 1, change))
        table = table.write(i, line.stack())
    return table.read(a_length)[b_length]


@program(x=normal(5))
def bubble_sort(x):
    """Sweeps until nothing is swapped."""
    swapped, sweeps = tf.constant(True), 0
    while swapped:
        swapped = tf.constant(False)
        for i in tf.range(4):
            a, b = x[i], x[i + 1]
            if a > b:
                x = tf.tensor_scatter_nd_update(x, [[i], [i + 1]], [b, a])
                swapped = tf.constant(True)
        sweeps += 1
    return x, sweeps


@program(x=normal(5))
def insertion_sort(x):
    """A loop moves items of a TensorArray in a loop."""
    items = tf.TensorArray(F8, 5, clear_after_read=False, element_shape=[]).unstack(x)
    for i in tf.range(1, 5):
        key = items.read(i)
        j = i - 1
        while j >= 0 and items.read(tf.maximum(j, 0)) > key:
            items = items.write(j + 1, items.read(j))
            j -= 1
        items = items.write(j + 1, key)
    return items.stack()


@program(limit=integers(0, 9))
def sieve_of_eratosthenes(limit):
    """A loop in a branch in a loop."""
    prime = tf.concat([[False, False], tf.ones([28], tf.bool)], 0)
    i = 2
    while i * i < 30 and i <= limit:
        if prime[i]:
            j = i * i
            while j < 30:
                prime = tf.tensor_scatter_nd_update(prime, [[j]], [False])
                j += i
        i += 1
    return prime, tf.reduce_sum(tf.cast(prime, tf.int64))


@program(a=integers(1, 30, dtype=np.int64), b=integers(0, 30, dtype=np.int64))
def collatz_of_a_divisor(a, b):
    """Euclid's algorithm in a tf.function, then 3 x + 1."""

    @tf.function
    def greatest_common_divisor(a, b):
        while b != 0:
            a, b = b, a % b
        return a

    divisor = greatest_common_divisor(a, b)
    x, steps = divisor + a, tf.constant(0, tf.int64)
    peak = x
    while x != 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        peak = tf.maximum(peak, x)
        steps += 1
    return divisor, steps, peak


@program(sentence=given(b"ab cd abc", b"abc", b"xyzw abc", b"a b c d e", b"", b"d"))
def words_of_a_sentence(sentence):
    """A loop of as many trips as words, with a break."""
    words = tf.strings.split([sentence], " ").values
    joined, count = tf.constant(""), 0
    for word in words:
        if tf.strings.regex_full_match(word, "[a-c]+"):
            joined = tf.strings.join([joined, tf.strings.upper(word)], "-")
            count += 1
        elif tf.strings.length(word) > 3:
            break
    return joined, count


@program(text=given(b"abc", b"", b"zz top", b"q"))
def reversed_text(text):
    """Letter by letter."""
    result = tf.constant("")
    while tf.strings.length(text) > 0:
        result = tf.strings.join([tf.strings.substr(text, 0, 1), result])
        text = tf.strings.substr(text, 1, 100)
    if result == "cba":
        result = "found"
    return result, tf.strings.length(result)


def successors():
    """A table of words."""
    keys, values = tf.constant(["a", "b", "c"]), tf.constant(["b", "c", "end"])
    initial = tf.lookup.KeyValueTensorInitializer(keys, values)
    return tf.lookup.StaticHashTable(initial, "none")


@program(word=given(b"a", b"c", b"x", b"end", b"b"), made={"table": successors})
def chain_of_lookups(word, table):
    """A table is asked until there is no successor."""
    k = 0
    while word != "end" and word != "none":
        word = table.lookup(word)
        k += 1
    return word, k


@program(edge=chances(0.3, 5, 5), source=integers(0, 5))
def breadth_first_search(edge, source):
    """A queue that grows in a branch of a loop in a loop."""
    queue = tf.TensorArray(
        tf.int32, 0, dynamic_size=True, clear_after_read=False, element_shape=[]
    ).write(0, source)
    distance = tf.tensor_scatter_nd_update(tf.fill([5], -1), [[source]], [0])
    head, tail = tf.constant(0), tf.constant(1)
    while head < tail:
        node = queue.read(head)
        head += 1
        for other in tf.range(5):
            if edge[node, other] and distance[other] < 0:
                further = distance[node] + 1
                distance = tf.tensor_scatter_nd_update(distance, [[other]], [further])
                queue = queue.write(tail, other)
                tail += 1
    return distance, tail


@program(edges=integers(0, 6, 4, 2))
def union_find(edges):
    """Components of a graph: two loops in a loop look for roots."""
    parent, components = tf.range(6), 6
    for edge in edges:
        a, b = edge[0], edge[1]
        while parent[a] != a:
            a = parent[a]
        while parent[b] != b:
            b = parent[b]
        if a != b:
            parent = tf.tensor_scatter_nd_update(parent, [[a]], [b])
            components -= 1
    return components, parent


@program(values=normal(6), limit=uniform(low=0.2, high=1.2))
def first_above_a_limit(values, limit):
    """continue and break."""
    value, place = tf.constant(-1.0, F8), -1
    for i in tf.range(6):
        if values[i] < 0:
            continue
        if values[i] > limit:
            value, place = values[i] * 10, i
            break
    return value, place


@program(code=integers(0, 4, 6), numbers=normal(6))
def stack_machine(code, numbers):
    """Pushes, sums, products and jumps."""
    stack = tf.TensorArray(F8, 8, element_shape=[], clear_after_read=False)
    stack = stack.unstack(tf.zeros([8], F8))
    top, place = tf.constant(0), tf.constant(0)
    while place < 6:
        if code[place] == 0 or top < 2:
            stack = stack.write(top, numbers[place])
            top += 1
        elif code[place] == 1:
            stack = stack.write(top - 2, stack.read(top - 1) + stack.read(top - 2))
            top -= 1
        elif code[place] == 2:
            stack = stack.write(top - 2, stack.read(top - 1) * stack.read(top - 2))
            top -= 1
        else:
            place += 1
        place += 1
    return stack.read(tf.maximum(top - 1, 0)), top


@program(words=normal(6, 3), reduce=integers(0, 2, 6), weights={"w": normal(6, 3)})
def shift_reduce_parser(words, reduce, w):
    """A stack of vectors, two of which a cell makes one."""
    stack = tf.TensorArray(F8, 6, element_shape=[3], clear_after_read=False)
    stack = stack.unstack(tf.zeros([6, 3], F8))
    top, place = 0, 0
    for action in reduce:
        if action == 1 and top >= 2:
            pair = tf.concat([stack.read(top - 2), stack.read(top - 1)], 0)
            stack = stack.write(top - 2, tf.tanh(tf.linalg.matvec(w, pair, transpose_a=True)))
            top -= 1
        else:
            stack = stack.write(top, words[place])
            top += 1
            place += 1
    return stack.read(top - 1), top


@program(boxes=normal(6, 2), scores=uniform(6))
def soft_suppression(boxes, scores):
    """Boxes are taken greedily while scores stay above a limit."""
    kept, k = integer_array(4, -1), 0
    best = tf.reduce_max(scores)
    while k < 4 and best > 0.3:
        i = tf.argmax(scores, output_type=tf.int32)
        kept = kept.write(k, i)
        overlap = tf.exp(-tf.reduce_sum((boxes - tf.gather(boxes, i)) ** 2, 1))
        scores = scores * tf.where(overlap > 0.5, tf.constant(0.0, F8), 1 - overlap)
        best = tf.reduce_max(scores)
        k += 1
    return kept.stack(), k, scores
