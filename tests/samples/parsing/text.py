"""Samples of tf_pfor/converters/parsing/text.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, sample

raw = tf.raw_ops
PLAIN = {"grad": False, "xla": False}


def texts(*shape, of):
    """Bytes as objects: as arrays of bytes they would lose zeros at the end."""

    def draw(rng):
        places = rng.integers(0, len(of), shape)
        made = np.empty(shape, object)
        for at in np.ndindex(*shape):
            made[at] = of[places[at]]
        return made

    return drawn(shape, draw)


JSON = [b"{}", b'{"features": {"feature": {"a": {"int64List": {"value": ["1"]}}}}}']
SAMPLES = [
    sample("DecodeCSV", lambda x: tf.io.decode_csv(x, [[0.5], ["-"]]),
        texts(of=[b"1,a", b",b", b"2.5,"]), **PLAIN),
    sample("DecodeCSV", lambda x: tf.io.decode_csv(x, [[0]], ";", na_value="no", select_cols=[1]),
        texts(2, 2, of=[b"1;2;3", b"4;no;6"]), label="one column", **PLAIN),
    sample("DecodeCompressed", lambda x: raw.DecodeCompressed(bytes=x, compression_type=""),
        texts(2, of=[b"a", b"", b"bcd"]), **PLAIN),
    sample("DecodeJSONExample", tf.io.decode_json_example, texts(of=JSON), **PLAIN),
]  # fmt: skip
