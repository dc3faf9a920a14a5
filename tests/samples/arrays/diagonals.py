"""Samples of tf_pfor/converters/arrays/diagonals.py."""

import numpy as np
import tensorflow as tf

from tests.sample import ints, normal, sample

raw = tf.raw_ops

SAMPLES = [
    sample("Diag", tf.linalg.tensor_diag, normal(3)),
    sample("Diag", tf.linalg.tensor_diag, normal(2, 3, dtype=np.complex64), label="rank 2"),
    sample("DiagPart", tf.linalg.tensor_diag_part, normal(3, 3)),
    sample("DiagPart", tf.linalg.tensor_diag_part, ints(2, 3, 2, 3), label="rank 4"),
    sample("MatrixBandPart", tf.linalg.band_part, normal(2, 3, 4), ints(low=-1, high=3),
           ints(low=-1, high=4), max_ops=24),
    sample("MatrixBandPart", tf.linalg.band_part, ints(3, 4), ints(low=-1, high=3, dtype=np.int64),
           ints(low=-1, high=3, dtype=np.int64), label="int64", max_ops=24),
    sample("MatrixDiag", lambda d: raw.MatrixDiag(diagonal=d), normal(2, 3)),
    sample("MatrixDiagPart", lambda x: raw.MatrixDiagPart(input=x), normal(2, 3, 4)),
    sample("MatrixDiagPartV2",
        lambda x: raw.MatrixDiagPartV2(input=x, k=[-1, 1], padding_value=7.0), normal(3, 4)),
    sample("MatrixDiagPartV3",
           lambda x: tf.linalg.diag_part(x, k=(-1, 0), align="LEFT_RIGHT"), normal(2, 3, 4)),
    sample("MatrixDiagPartV2",
           lambda x, p: raw.MatrixDiagPartV2(input=x, k=[-1, 1], padding_value=p),
           normal(3, 4), normal(), label="padding"),
    sample("MatrixDiagPartV3",
           lambda x, p: tf.linalg.diag_part(x, k=(-1, 1), padding_value=p, align="RIGHT_LEFT"),
           normal(2, 3, 4), normal(), label="padding"),
    sample("MatrixDiagV2",
        lambda d, p: raw.MatrixDiagV2(diagonal=d, k=1, num_rows=-1, num_cols=-1, padding_value=p),
        normal(2, 3), normal(), label="padding"),
    sample("MatrixDiagV3", lambda d, p: tf.linalg.diag(d, k=(-1, 0), padding_value=p),
           normal(2, 3), normal(), label="padding"),
    sample("MatrixDiagV2",
           lambda d: raw.MatrixDiagV2(diagonal=d, k=1, num_rows=-1, num_cols=-1,
                                      padding_value=0.5), normal(2, 3)),
    sample("MatrixDiagV3", lambda d: tf.linalg.diag(d, k=(-1, 0), align="LEFT_LEFT"), normal(2, 3)),
    sample("MatrixSetDiag", lambda x, d: raw.MatrixSetDiag(input=x, diagonal=d), normal(3, 4),
           normal(3)),
    sample("MatrixSetDiagV2", lambda x, d: raw.MatrixSetDiagV2(input=x, diagonal=d, k=1),
           normal(3, 4), normal(3)),
    sample("MatrixSetDiagV3", lambda x, d: tf.linalg.set_diag(x, d, k=(0, 1)), normal(2, 3, 4),
           normal(2, 2, 3)),
]  # fmt: skip
