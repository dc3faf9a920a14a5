"""Text that splits, tables and preprocessing layers, one example at a time: as a loop over rows."""

import keras
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map
from tests.ways import LOOP, errors_of, map_of, place, table_of

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
    "bag of means": lambda s: tf.math.divide_no_nan(tf.reduce_sum(tf.gather(EMBEDDINGS, ids(s)), 0),
        tf.cast(tf.size(ids(s)), tf.float32)),
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
    "joined by parity": lambda s: strings.unsorted_segment_join(split(s),
        tf.range(tf.size(split(s))) % 2, 2, "-"),
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
    "encoded again": lambda s: strings.unicode_encode(strings.unicode_decode(s, "UTF-8") + 1,
        "UTF-8"),
    "pairs": lambda s: strings.ngrams(strings.unicode_split(s, "UTF-8"), 2, separator=""),
    "scripts": lambda s: strings.unicode_script(strings.unicode_decode(s, "UTF-8")),
    "split": lambda s: strings.unicode_split(s, "UTF-8"),
    "split, with offsets": lambda s: strings.unicode_split_with_offsets(s, "UTF-8"),
    "transcoded": lambda s: strings.unicode_transcode(s, "UTF-8", "UTF-16-BE"),
}  # fmt: skip

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
    "joined in two lines": lambda v: strings.reduce_join(tf.stack([v, strings.upper(v)]), axis=1,
        separator="-"),
    "joined in pairs": lambda v: strings.reduce_join(tf.stack([v, strings.upper(v)], 1), axis=1),
    "joined in two lines, as columns": lambda v: strings.reduce_join(tf.reshape(tf.stack([v,
        strings.upper(v)]), [2, -1, 1]), axis=1),
    "lookup layer": lambda v: LOOKUPS["int"](v),
    "upper": strings.upper,
}  # fmt: skip


def branch(s):
    words = split(s)
    return tf.cond(tf.size(words) > 1, lambda: strings.length(words[1]), lambda: tf.constant(-1))


def loop(s):
    words, total = split(s), tf.constant("")
    for k in tf.range(tf.size(words)):
        total = strings.join([words[k], total])
    return total


GROUPS = {
    "texts": (OF_TEXTS, TEXTS),
    "characters": (OF_CHARACTERS, CHARACTERS),
    "pairs": (OF_PAIRS, PAIRS),
    "many": (OF_MANY, MANY),
    "tokens": (OF_MANY, TOKENS),
}
CASES = {
    f"{group}: {name}": (body, rows)
    for group, (bodies, rows) in GROUPS.items()
    for name, body in bodies.items()
}
# Every body in two ways, one of which is an eager call; some in all.
EVERYWHERE = [
    "texts: bag", "texts: ids", "texts: split", "texts: texts, ids", "texts: texts, count",
    "characters: decoded", "texts: ngrams", "pairs: tensor", "many: split", "tokens: in buckets",
    "texts: joined again", "texts: texts of length 4",
]  # fmt: skip
OTHER_WAYS = [
    "dataset",
    "function",
    "unknown sizes",
    "one row",
    "no rows",
    "unknown sizes, no rows",
]
test_table_of_texts = table_of(
    CASES, ways=["eager", *OTHER_WAYS, "two maps"],
    only={
        **{way: [*EVERYWHERE, *list(CASES)[i::6]] for i, way in enumerate(OTHER_WAYS)},
        "two maps": ["texts: bag", "texts: number", "texts: texts, count", "texts: joined again",
                     "texts: texts of length 4"],
    },
    looped=["two maps"],
)  # fmt: skip
TWO = tf.constant([[["a b", "c d e"], ["", "x y"]], [["q", "r s t u"], ["w w", ""]]])
OF_VECTORS = {
    "number": lambda v: tf.size(split(v).values),
    "dense": lambda v: split(v).to_tensor("", shape=[2, 4]),
    "lengths": lambda v: split(v).row_lengths(),
    "joined": lambda v: strings.reduce_join(split(v).values, separator="-"),
    "each joined": lambda v: strings.reduce_join(split(v), axis=1, separator="-"),
}


def prefixes(texts, length):
    """The map around knows how long they are."""
    each = tf.stack([texts, strings.upper(texts)])
    return strict_map(lambda row: strings.reduce_join(row[:length], separator=","), each)


PREFIXES = (tf.constant([["a", "b", "c"], ["d", "", "f"]] * 2), tf.constant([2, 3, 0, 1]))
# The number of texts is known: the inner map is one map over pairs where it would loop.
test_table_of_maps = table_of(
    {
        "prefixes": (prefixes, PREFIXES),
        **{k: (lambda rows, f=f: strict_map(f, rows), TWO) for k, f in OF_VECTORS.items()},
    },
    ways=["eager"],
)  # fmt: skip
test_table_of_other_texts = table_of(
    {
        "branch": branch,
        "loop": loop,
        "embedded": lambda s: tf.reduce_sum(tf.gather(EMBEDDINGS, ids(s)) ** 2),
        "of one length": (lambda s: TABLE.lookup(split(s)), tf.constant(["a b", "b c"])),
        "sums of each of two": (lambda v: tf.reduce_sum(strings.length(split(v)), 1), PAIRS),
    },
    TEXTS, ways=["eager", "function", "no rows", "around"],
    only={"around": ["embedded"], "function": ["sums of each of two"],
          "no rows": ["sums of each of two"]},
    by=(EMBEDDINGS,),
)  # fmt: skip

NUMBERS = tf.constant([[1, 2, 0], [0, 3, 3], [3, 1, 9], [2, 1, 1]])
X = tf.random.stateless_normal([4, 3], [3, 4])
NORMALIZATION = L.Normalization(mean=1.0, variance=2.0)
NORMALIZATION.build([None, 3])
SALTED = L.Hashing(num_bins=3, salt=[1, 2])
LAYERS = {
    **{f"IntegerLookup, {mode}": (L.IntegerLookup(vocabulary=[1, 2, 3], output_mode=mode), NUMBERS)
        for mode in MODES},
    **{f"StringLookup, {m}": (layer, tf.as_string(NUMBERS)) for m, layer in LOOKUPS.items()},
    **{f"Discretization, {mode}": (L.Discretization(bin_boundaries=[0.0, 1.0], output_mode=mode), X)
        for mode in MODES},
    **{f"CategoryEncoding, {mode}": (L.CategoryEncoding(num_tokens=10, output_mode=mode), NUMBERS)
        for mode in MODES[1:]},
    "Hashing": (HASHING, NUMBERS),
    "Hashing of texts, salted": (SALTED, tf.as_string(NUMBERS)),
    "IntegerLookup of one": (L.IntegerLookup(vocabulary=[1, 2, 3]), NUMBERS[:, 0]),
    "Normalization": (NORMALIZATION, X),
    "StringLookup, inverted": (L.StringLookup(vocabulary=WORDS, invert=True), NUMBERS),
}  # fmt: skip
# In a data set, and eagerly: nothing may loop.
test_table_of_layers = table_of(LAYERS, ways=["eager", "dataset"])


@pytest.mark.parametrize("way", ["eager", "unknown sizes", "no rows"])
def test_inserts_of_tokens(way):
    """In the order of the rows: of equal keys the last one stays."""
    tables = []
    for is_mapped in (True, False):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

        def insert(v, table=table):
            table.insert(v, tf.range(tf.size(v, tf.int64)))
            return tf.size(v)

        def remove(v, table=table):
            table.remove(v[:1])
            return tf.size(v)

        rows, exports = TOKENS[:0] if way == "no rows" else TOKENS, []
        for body in (insert, remove):
            run = place(way, map_of(way, body, {}), (rows,), ())
            run(rows) if is_mapped else [body(rows[i]) for i in range(int(rows.nrows()))]
            exports.append(dict(zip(*(x.numpy() for x in table.export()))))
        tables.append(exports)
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
THREE_AND_ONE = tf.ragged.constant([["a", "b", "c"], ["hello"]])
test_what_a_row_refuses_is_an_error = errors_of(WRONG, THREE_AND_ONE, match=r"test_text.py:\d+")


@pytest.mark.parametrize("name", WRONG)
def test_what_the_map_refuses_a_row_refuses(name):
    with pytest.raises(tf.errors.InvalidArgumentError):
        WRONG[name](THREE_AND_ONE[0])


def claimed(made, shape):
    made.set_shape(shape)
    return made


# A loop names the line as well; the kernel that runs rows would name itself.
CLAIMS = {
    "numbers": (
        lambda s: claimed(strings.to_number(split(s, "-")), [3]),
        tf.constant(["2020-01-02", "2021-10-12"])),
    "bytes": (lambda s: claimed(tf.io.decode_raw(s, tf.uint8), [2]), tf.constant(["ab", "cd"])),
}  # fmt: skip
FALSE_CLAIMS = {
    "numbers": (
        CLAIMS["numbers"][0], tf.constant(["2020-01-02", "2021-10"]),
        r"body says(.|\n)*test_text.py"),
    "bytes": (CLAIMS["bytes"][0], tf.constant(["ab", "cde"]), r"DecodeRaw(.|\n)*test_text"),
}  # fmt: skip
test_table_of_claimed_shapes = table_of(
    CLAIMS, ways=["eager", "unknown sizes", "no rows"],
    looped={way: ["bytes"] for way in ("eager", "unknown sizes", "no rows")},
)  # fmt: skip
test_false_claims = errors_of(FALSE_CLAIMS, **LOOP)
test_false_claims_of_unknown_sizes = errors_of(FALSE_CLAIMS, way="unknown sizes", **LOOP)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claimed_shape_makes_a_result_dense(name):
    body, rows = CLAIMS[name]
    assert isinstance(tf_pfor.vectorized_map(body, rows, warn=False), tf.Tensor)


@pytest.mark.parametrize("name", ["ids", "lengths", "split"])
def test_results_of_different_lengths_are_not_dense(name):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf_pfor.vectorized_map(OF_TEXTS[name], TEXTS, out_shapes="dense")
    assert "differs between iterations" in str(caught.value)
    assert "test_text.py" in str(caught.value)
    assert "Mismatch" not in str(caught.value)
