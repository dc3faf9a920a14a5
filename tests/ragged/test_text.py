"""Text that splits, tables and preprocessing layers, one example at a time: as a loop over rows."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_around, strict_map

N = 5
TEXTS = tf.constant(["a b C", "hello", "", " a b, hello a  b", "b"])
WORDS = ["a", "b", "hello"]
L = keras.layers
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(WORDS, [1, 2, 3]), -1)
BUCKETS = tf.lookup.StaticVocabularyTable(
    tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(3, dtype=tf.int64)), 2
)
MUTABLE = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
MUTABLE.insert(tf.constant(WORDS), tf.constant([1, 2, 3], tf.int64))
VECTORS = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.5])
VECTORS.insert(tf.constant(WORDS), tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
DENSE = tf.lookup.experimental.DenseHashTable(tf.string, tf.int64, -1, "<e>", "<d>")
DENSE.insert(tf.constant(WORDS), tf.constant([1, 2, 3], tf.int64))
EMBEDDINGS = tf.Variable(tf.random.stateless_normal([5, 4], [1, 2]))
split, strings = tf.strings.split, tf.strings


def ids(s):
    return TABLE.lookup(split(s)) + 1


def texts_of(**options):
    return L.TextVectorization(vocabulary=WORDS, **options)


VECTORIZERS = {
    "ids": texts_of(),
    "multi_hot": texts_of(output_mode="multi_hot"),
    "count": texts_of(output_mode="count"),
    "tf_idf": texts_of(output_mode="tf_idf", idf_weights=[0.5, 0.25, 1.0]),
    "pairs": texts_of(ngrams=2, output_mode="count"),
    "characters": L.TextVectorization(vocabulary=[*"abhelo"], split="character"),
}
OF_LENGTH_4 = texts_of(output_sequence_length=4)
PAIRS_OF_LENGTH_4 = texts_of(output_sequence_length=4, ngrams=2)
AS_RAGGED = texts_of(ragged=True)
MODES = ("int", "multi_hot", "one_hot", "count")
LOOKUPS = {mode: L.StringLookup(vocabulary=WORDS, output_mode=mode) for mode in MODES}
HASHING = L.Hashing(num_bins=3)

OF_TEXTS = {
    "bag": lambda s: tf.reduce_sum(tf.gather(EMBEDDINGS, ids(s)), 0),
    "bag of means": lambda s: tf.math.divide_no_nan(
        tf.reduce_sum(tf.gather(EMBEDDINGS, ids(s)), 0), tf.cast(tf.size(ids(s)), tf.float32)
    ),
    "begin and end": lambda s: tf.concat([["<s>"], split(s), ["</s>"]], 0),
    "bytes": strings.bytes_split,
    "compared": lambda s: tf.reduce_sum(tf.cast(tf.equal(split(s), "a"), tf.int32)),
    "at most three": lambda s: split(s)[:3],
    "distinct": lambda s: tf.unique(split(s))[0],
    "first": lambda s: split(s + " x")[0],
    "hashed": lambda s: strings.to_hash_bucket_fast(split(s), 10),
    "hashed by a layer": lambda s: HASHING(split(s)),
    "ids": ids,
    "in buckets": lambda s: BUCKETS.lookup(split(s)),
    "in a mutable table": lambda s: MUTABLE.lookup(split(s)),
    "in a table of vectors": lambda s: VECTORS.lookup(split(s)),
    "in a dense table": lambda s: DENSE.lookup(split(s)),
    "joined again": lambda s: strings.reduce_join(split(s), separator="-"),
    "joined by parity": lambda s: strings.unsorted_segment_join(
        split(s), tf.range(tf.size(split(s))) % 2, 2, "-"
    ),
    "last": lambda s: split(s + " x")[-1],
    "lengths": lambda s: strings.length(split(s)),
    "longest": lambda s: tf.reduce_max(strings.length(split(s + " x"))),
    "looked up, of five": lambda s: LOOKUPS["int"](split(s[None]).to_tensor("", shape=[1, 5])),
    "lookup layer, multi_hot": lambda s: LOOKUPS["multi_hot"](split(s)),
    "lower, without commas": lambda s: split(strings.regex_replace(strings.lower(s), ",", "")),
    "ngrams": lambda s: strings.ngrams(split(s), 2),
    "ngrams of several widths": lambda s: strings.ngrams(split(s), (1, 2), separator="_"),
    "ngrams with padding": lambda s: strings.ngrams(split(s), 2, pad_values=("<", ">")),
    "number": lambda s: tf.size(split(s)),
    "pairs of two": lambda s: strings.join([split(s), split(s)], "_"),
    "prefixes": lambda s: strings.join(["w:", split(s), s]),
    "raw": lambda s: tf.io.decode_raw(s, tf.uint8),
    "replaced": lambda s: strings.regex_replace(split(s), tf.constant("l+"), "L"),
    "selected": lambda s: tf.boolean_mask(split(s), tf.not_equal(split(s), "a")),
    "split at commas": lambda s: split(s, ","),
    "split at most once": lambda s: split(s, maxsplit=1),
    "split": split,
    "sum of bytes": lambda s: tf.reduce_sum(tf.io.decode_raw(s, tf.uint8)),
    "starts": lambda s: strings.substr(split(s), 0, 1),
    "tensor of five": lambda s: split(s[None]).to_tensor("", shape=[1, 5]),
    "texts of length 4": lambda s: OF_LENGTH_4(s[None])[0],
    "pairs of length 4": lambda s: PAIRS_OF_LENGTH_4(s[None])[0],
    "texts, ragged": lambda s: AS_RAGGED(s[None]),
    "texts, multi_hot of one": lambda s: VECTORIZERS["multi_hot"](s[None])[0],
    **{f"texts, {k}": (lambda s, k=k: VECTORIZERS[k](s)) for k in VECTORIZERS},
}  # fmt: skip

CHARACTERS = tf.constant(["äb", "", "日本語 x", "a", "zz"])
OF_CHARACTERS = {
    "decoded": lambda s: strings.unicode_decode(s, "UTF-8"),
    "decoded, with offsets": lambda s: strings.unicode_decode_with_offsets(s, "UTF-8"),
    "encoded again": lambda s: strings.unicode_encode(
        strings.unicode_decode(s, "UTF-8") + 1, "UTF-8"
    ),
    "pairs": lambda s: strings.ngrams(strings.unicode_split(s, "UTF-8"), 2, separator=""),
    "scripts": lambda s: strings.unicode_script(strings.unicode_decode(s, "UTF-8")),
    "split": lambda s: strings.unicode_split(s, "UTF-8"),
    "split, with offsets": lambda s: strings.unicode_split_with_offsets(s, "UTF-8"),
    "transcoded": lambda s: strings.unicode_transcode(s, "UTF-8", "UTF-16-BE"),
}

PAIRS = tf.constant([["a b", "c"], ["", "d e f"], ["x", "y"], ["", ""], ["q  r", "hello"]])
OF_PAIRS = {
    "characters": lambda v: strings.unicode_decode(v, "UTF-8"),
    "ids": ids,
    "joined": lambda v: strings.reduce_join(v, separator=" "),
    "lengths": lambda v: split(v).row_lengths(),
    "ngrams": lambda v: strings.ngrams(split(v), 2),
    "ngrams of the pair": lambda v: strings.ngrams(v, 2, pad_values=("<", ">")),
    "split": split,
    "tensor": lambda v: split(v).to_tensor("?"),
    "tensor of two": lambda v: split(v).to_tensor("?", shape=[None, 2]),
    "values": lambda v: split(v).values,
}
MANY = tf.ragged.constant([["a b", "c"], [], ["", "hello a b"], ["b"], ["a", "a", "a b c", ""]])
TOKENS = tf.ragged.constant([["a", "b", "c"], [], ["hello"], ["b", "zz"], ["a", "a", "b"]])
OF_MANY = {
    **{k: v for k, v in OF_PAIRS.items() if "of the pair" not in k},
    "bag": lambda v: tf.reduce_sum(tf.gather(EMBEDDINGS, TABLE.lookup(v) + 1), 0),
    "in buckets": lambda v: BUCKETS.lookup(v),
    "in a mutable table": lambda v: MUTABLE.lookup(v),
    "joined in two lines": lambda v: strings.reduce_join(
        tf.stack([v, strings.upper(v)]), axis=1, separator="-"
    ),
    "joined in pairs": lambda v: strings.reduce_join(tf.stack([v, strings.upper(v)], 1), axis=1),
    "joined in two lines, as columns": lambda v: strings.reduce_join(
        tf.reshape(tf.stack([v, strings.upper(v)]), [2, -1, 1]), axis=1
    ),
    "lookup layer": lambda v: LOOKUPS["int"](v),
    "upper": strings.upper,
}
CASES = {
    **{("texts", k): (f, TEXTS) for k, f in OF_TEXTS.items()},
    **{("characters", k): (f, CHARACTERS) for k, f in OF_CHARACTERS.items()},
    **{("pairs", k): (f, PAIRS) for k, f in OF_PAIRS.items()},
    **{("many", k): (f, MANY) for k, f in OF_MANY.items()},
    **{("tokens", k): (f, TOKENS) for k, f in OF_MANY.items()},
}


def in_a_data_set(fn, rows):
    (found,) = tf.data.Dataset.from_tensor_slices(rows).batch(N).map(lambda x: mapped(fn, x))
    return found


def mapped(fn, rows):
    return tf_pfor.vectorized_map(fn, rows)


def unknown(fn, rows):
    if isinstance(rows, tf.RaggedTensor):
        spec = tf.RaggedTensorSpec([None, None], tf.string)
    else:
        spec = tf.TensorSpec([None] * rows.shape.rank, tf.string)
    return tf.function(lambda x: mapped(fn, x), input_signature=[spec])(rows)


SITES = {
    "eager": mapped,
    "data": in_a_data_set,
    "fixed": lambda fn, rows: tf.function(lambda x: mapped(fn, x))(rows),
    "unknown": unknown,
    "one row": lambda fn, rows: mapped(fn, rows[2:3]),
    "no rows": lambda fn, rows: mapped(fn, rows[:0]),
    "no rows, unknown": lambda fn, rows: unknown(fn, rows[:0]),
}


def as_list(x):
    made = x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy()
    return made.tolist() if isinstance(made, (np.ndarray, np.generic)) else made


def assert_rows(found, fn, rows):
    """``found`` is what a loop over ``rows`` makes, also in its nesting and dtypes."""
    n = int(tf.shape(rows)[0])
    expected = [tf.nest.flatten(fn(rows[i])) for i in range(n)]
    for k, part in enumerate(tf.nest.flatten(found)):
        assert int(tf.shape(part)[0]) == n
        assert all(row[k].dtype == part.dtype for row in expected)
        assert_same(as_list(part), [as_list(row[k]) for row in expected])


def assert_same(found, expected):
    """Nested lists with the same elements; floats up to rounding."""
    assert isinstance(found, list) == isinstance(expected, list)
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5)
    elif not isinstance(expected, list):
        assert found == expected
    else:
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert_same(a, b)


# Every body at two sites, one of which is an eager call; some everywhere.
EVERYWHERE = [
    ("texts", "bag"), ("texts", "ids"), ("texts", "split"), ("texts", "texts, ids"),
    ("texts", "texts, count"), ("characters", "decoded"), ("texts", "ngrams"), ("pairs", "tensor"),
    ("many", "split"), ("tokens", "in buckets"), ("texts", "joined again"),
    ("texts", "texts of length 4"),
]  # fmt: skip
OTHERS = [s for s in SITES if s != "eager"]
RUNS = [
    (*case, site)
    for i, case in enumerate(CASES)
    for site in (SITES if case in EVERYWHERE else ("eager", OTHERS[i % len(OTHERS)]))
]


@pytest.mark.parametrize(("group", "name", "site"), RUNS)
def test_values(group, name, site):
    fn, rows = CASES[group, name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        found = SITES[site](fn, rows)
    count = {"one row": slice(2, 3), "no rows": slice(0), "no rows, unknown": slice(0)}
    assert_rows(found, fn, rows[count.get(site, slice(N))])


NUMBERS = tf.constant([[1, 2, 0], [0, 3, 3], [3, 1, 9], [2, 1, 1]])
X = tf.random.stateless_normal([4, 3], [3, 4])
NORMALIZATION = L.Normalization(mean=1.0, variance=2.0)
NORMALIZATION.build([None, 3])
SALTED = L.Hashing(num_bins=3, salt=[1, 2])
LAYERS = {
    **{
        f"IntegerLookup, {mode}": (L.IntegerLookup(vocabulary=[1, 2, 3], output_mode=mode), NUMBERS)
        for mode in MODES
    },
    **{f"StringLookup, {m}": (layer, tf.as_string(NUMBERS)) for m, layer in LOOKUPS.items()},
    **{
        f"Discretization, {mode}": (
            L.Discretization(bin_boundaries=[0.0, 1.0], output_mode=mode), X)
        for mode in MODES
    },
    **{
        f"CategoryEncoding, {mode}": (
            L.CategoryEncoding(num_tokens=10, output_mode=mode), NUMBERS)
        for mode in MODES[1:]
    },
    "Hashing": (HASHING, NUMBERS),
    "Hashing of texts, salted": (SALTED, tf.as_string(NUMBERS)),
    "IntegerLookup of one": (L.IntegerLookup(vocabulary=[1, 2, 3]), NUMBERS[:, 0]),
    "Normalization": (NORMALIZATION, X),
    "StringLookup, inverted": (L.StringLookup(vocabulary=WORDS, invert=True), NUMBERS),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    """In a data set, and eagerly: nothing may loop."""
    layer, rows = LAYERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        assert_rows(mapped(lambda x: layer(x), rows), layer, rows)
        assert_rows(in_a_data_set(lambda x: layer(x), rows), layer, rows)


def new_table():
    return tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)


@pytest.mark.parametrize("site", ["eager", "unknown", "no rows"])
def test_inserts_of_tokens(site):
    """In the order of the rows: of equal keys the last one stays."""

    def body(v):
        table.insert(v, tf.range(tf.size(v, tf.int64)))
        return tf.size(v)

    def remove(v):
        table.remove(v[:1])
        return tf.size(v)

    rows, tables = TOKENS[:0] if site == "no rows" else TOKENS, []
    for run in (SITES[site], lambda fn, rows: [fn(TOKENS[i]) for i in range(int(rows.nrows()))]):
        table = new_table()
        run(body, rows)
        inserted = table.export()
        run(remove, rows)
        exports = (inserted, table.export())
        tables.append([dict(zip(k.numpy(), v.numpy())) for k, v in exports])
    assert tables[0] == tables[1]


WRONG = {
    "ends early": lambda v: tf.raw_ops.UnicodeEncode(
        input_values=tf.range(97, 97 + tf.size(v)), input_splits=tf.stack([0, tf.size(v) - 1]),
        output_encoding="UTF-8",
    ),
    "begins late": lambda v: tf.raw_ops.StringNGrams(
        data=v, data_splits=tf.stack([1, tf.size(v)]), separator=" ", ngram_widths=[2],
        left_pad="", right_pad="", pad_width=0, preserve_short_sequences=False,
    )[0],
    "a segment too far": lambda v: strings.unsorted_segment_join(v, tf.range(tf.size(v)), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_a_row_refuses_is_an_error(name):
    rows = tf.ragged.constant([["a", "b", "c"], ["hello"]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        WRONG[name](rows[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_text.py:\d+"):
        strict_map(WRONG[name], rows)


@pytest.mark.parametrize("site", ["eager", "fixed", "no rows"])
def test_sums_over_the_words_of_each_of_two_texts(site):
    def body(v):
        return tf.reduce_sum(strings.length(split(v)), 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        assert_rows(SITES[site](body, PAIRS), body, PAIRS[:0] if site == "no rows" else PAIRS)


@pytest.mark.parametrize("site", ["eager", "unknown", "no rows"])
def test_a_shape_that_set_shape_claims_is_checked(site):
    def numbers(s):
        found = strings.to_number(split(s, "-"))
        found.set_shape([3])
        return found

    days = tf.constant(["2020-01-02", "2021-10-12"])
    found = SITES[site](numbers, days)
    assert isinstance(found, tf.Tensor)
    expected = [] if site == "no rows" else [[2020.0, 1.0, 2.0], [2021.0, 10.0, 12.0]]
    assert found.numpy().tolist() == expected
    assert found.shape == [len(expected), 3]
    if site != "no rows":
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"body says(.|\n)*test_text.py"):
            SITES[site](numbers, tf.constant(["2020-01-02", "2021-10"]))


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("site", ["eager", "unknown"])
def test_a_shape_that_set_shape_claims_is_checked_by_a_loop(site):
    """By the loop, which names the line; the kernel that runs rows would name itself."""

    def body(s):
        made = tf.io.decode_raw(s, tf.uint8)
        made.set_shape([2])
        return made

    found = SITES[site](body, tf.constant(["ab", "cd"]))
    assert found.numpy().tolist() == [[97, 98], [99, 100]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"DecodeRaw(.|\n)*test_text"):
        SITES[site](body, tf.constant(["ab", "cde"]))


def test_texts_of_one_length_are_a_result():
    found = mapped(lambda s: TABLE.lookup(split(s)), tf.constant(["a b", "b c"]))
    assert found.numpy().tolist() == [[1, 2], [2, -1]]


@pytest.mark.parametrize("name", ["ids", "lengths", "split"])
def test_results_of_different_lengths_are_not_dense(name):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf_pfor.vectorized_map(OF_TEXTS[name], TEXTS, out_shapes="dense")
    assert "differs between iterations" in str(caught.value)
    assert "test_text.py" in str(caught.value)
    assert "Mismatch" not in str(caught.value)


def test_gradients_of_embeddings():
    """Through the words of each text, to the table that all share."""

    def loss(s):
        return tf.reduce_sum(tf.gather(EMBEDDINGS, ids(s)) ** 2)

    compare_around(loss, TEXTS, by=[EMBEDDINGS], rtol=1e-5, atol=1e-12)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize(
    "name", ["bag", "number", "texts, count", "joined again", "texts of length 4"]
)
def test_in_a_map_of_a_map(name):
    fn = OF_TEXTS[name]
    rows = tf.reshape(TEXTS[:4], [2, 2])
    found = tf_pfor.vectorized_map(lambda r: tf_pfor.vectorized_map(fn, r), rows)
    for i in range(2):
        assert_rows(found[i], fn, rows[i])


OF_VECTORS = {
    "number": lambda v: tf.size(tf.strings.split(v).values),
    "dense": lambda v: tf.strings.split(v).to_tensor("", shape=[2, 4]),
    "lengths": lambda v: tf.strings.split(v).row_lengths(),
    "joined": lambda v: tf.strings.reduce_join(tf.strings.split(v).values, separator="-"),
    "each joined": lambda v: tf.strings.reduce_join(tf.strings.split(v), axis=1, separator="-"),
}


@pytest.mark.parametrize("name", OF_VECTORS)
def test_a_vector_of_texts_in_a_map_of_a_map(name):
    """The number of texts is known: the inner map is one map over pairs where it would loop."""
    body = OF_VECTORS[name]
    texts = tf.constant([[["a b", "c d e"], ["", "x y"]], [["q", "r s t u"], ["w w", ""]]])

    found = strict_map(lambda rows: strict_map(body, rows), texts)
    for i in range(2):
        for k in range(2):
            np.testing.assert_array_equal(found[i, k], body(texts[i, k]))


def test_prefixes_joined_in_a_map_of_a_map():
    """The map around knows how long they are."""

    def body(texts, length):
        each = tf.stack([texts, strings.upper(texts)])
        return strict_map(lambda row: strings.reduce_join(row[:length], separator=","), each)

    texts, lengths = tf.constant([["a", "b", "c"], ["d", "", "f"]] * 2), tf.constant([2, 3, 0, 1])
    found = strict_map(lambda row: body(*row), (texts, lengths))
    for got, *row in zip(found, texts, lengths, strict=True):
        np.testing.assert_array_equal(got, body(*row))


@pytest.mark.parametrize("where", ["branch", "loop"])
def test_in_control_flow(where):
    def branch(s):
        words = split(s)
        return tf.cond(
            tf.size(words) > 1, lambda: strings.length(words[1]), lambda: tf.constant(-1)
        )

    def loop(s):
        words, total = split(s), tf.constant("")
        for k in tf.range(tf.size(words)):
            total = strings.join([words[k], total])
        return total

    body = {"branch": branch, "loop": tf.autograph.to_graph(loop)}[where]
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        assert_rows(mapped(body, TEXTS), body, TEXTS)
