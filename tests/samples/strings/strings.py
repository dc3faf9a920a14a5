"""Samples of tf_pfor/converters/strings/strings.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample

raw = tf.raw_ops
TEXTS = [b"", b"a", b" Bc d ", "Ümläut".encode(), b"longer words", b"42"]
PLAIN = {"grad": False, "xla": False}


def texts(*shape, of=TEXTS):
    return drawn(shape, lambda rng: rng.choice(np.asarray(of, object), shape or None))


def one(op_type, *inputs, label="", of=TEXTS, **attrs):
    """A sample of an op of one text."""

    def fn(x):
        return getattr(raw, op_type)(**{name: x}, **attrs)

    name = "string_tensor" if op_type in ("StringToHashBucket", "StringToNumber") else "input"
    return sample(op_type, fn, *(inputs or [texts(2, 3, of=of)]), label=label, **PLAIN)


def joined(axes, *shape, label="", **attrs):
    """A sample of ReduceJoin."""
    return sample(
        "ReduceJoin",
        lambda x: raw.ReduceJoin(inputs=x, reduction_indices=axes, separator="-", **attrs),
        texts(*shape), label=label, **PLAIN,
    )  # fmt: skip


SAMPLES = [
    one("AsString", normal(2, 3), precision=3),
    one("AsString", ints(4), width=5, fill="0", label="integers"),
    one("DecodeBase64", of=[b"YQ", b"", b"YmMgZA"]),
    one("EncodeBase64", pad=True),
    one("StaticRegexFullMatch", pattern="[a-z ]*"),
    one("StaticRegexReplace", pattern="[a-c]", rewrite="(\\0)", replace_global=False),
    one("StringLength"),
    one("StringLength", unit="UTF8_CHAR", label="characters"),
    one("StringLower", encoding="utf-8"),
    one("StringStrip"),
    one("StringToHashBucket", num_buckets=7),
    one("StringToHashBucketFast", num_buckets=7),
    one("StringToHashBucketStrong", num_buckets=7, key=[1, 2]),
    one("StringToNumber", of=[b"1", b"-2.5", b"1e3"]),
    one("StringToNumber", of=[b"1", b"-2"], out_type=tf.int64, label="integers"),
    one("StringUpper"),
    one("StringUpper", texts(), label="scalar"),
    sample("Fingerprint", lambda x: raw.Fingerprint(data=x, method="farmhash64"), texts(3, 2),
           **PLAIN),
    sample("Fingerprint", lambda x: raw.Fingerprint(data=x, method="farmhash64"), ints(2, 3),
           label="integers", **PLAIN),
    one("SdcaFprint", texts(3)),
    sample("ShardedFilename", lambda x, i, n: raw.ShardedFilename(
               basename=x, shard=i, num_shards=n), texts(), ints(low=-3), ints(high=200000),
           **PLAIN),
    sample("ShardedFilespec", lambda x, n: raw.ShardedFilespec(basename=x, num_shards=n), texts(),
           ints(), **PLAIN),
    one("UnicodeScript", ints(2, 3, low=60, high=1000)),
    one("UnicodeTranscode", input_encoding="UTF-8", output_encoding="UTF-16-BE"),
    joined([0], 3), joined([0, 1], 2, 3, label="rows first"),
    joined([-1, 0], 2, 3, label="columns first"), joined([1], 2, 3, label="kept", keep_dims=True),
    sample("RegexFullMatch", lambda x, pattern: raw.RegexFullMatch(input=x, pattern=pattern),
        texts(3), fixed(b"[a-z]*"), **PLAIN),
    sample("RegexReplace",
        lambda x, pattern, rewrite: raw.RegexReplace(input=x, pattern=pattern, rewrite=rewrite,
        replace_global=False), texts(2, 2), fixed(b"[a-z]"), fixed(b"-"), **PLAIN),
    sample("StringJoin", lambda x, y, z: tf.strings.join([x, y, z], "-"), texts(2, 3), texts(),
        texts(2, 3), **PLAIN),
    sample("StringJoin", lambda x, y: tf.strings.join([x, y]), texts(), texts(), label="scalars",
           **PLAIN),
    sample("Substr", lambda x, at: tf.strings.substr(x, at, [2] * 4),
        texts(4, of=[b"abcd", b"efghi"]), ints(4, high=3), **PLAIN),
    sample("Substr", lambda x: tf.strings.substr(x, -3, 2), texts(2, 2, of=[b"abcd", b"efghi"]),
           label="constants", **PLAIN),
    sample("Substr", lambda x, at, size: tf.strings.substr(x, at, size, unit="UTF8_CHAR"),
        texts(of=["äbcd".encode(), "efgüi".encode()]), ints(high=3), ints(high=4), label="scalars",
        **PLAIN),
]  # fmt: skip
