"""Samples of tf_pfor/converters/nn/cells.py."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, normal, sample

raw = tf.raw_ops
B, K, C, T = 2, 3, 2, 4
_QUIET = {"grad": False, "xla": False, "max_ops": 40}  # no gradients by XLA, or at all


def _weights(*shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


W, BIAS, PEEP = _weights(K + C, 4 * C, seed=1), _weights(4 * C, seed=2), _weights(C, seed=3)
LSTM = {"w": W, "wci": PEEP, "wcf": PEEP, "wco": PEEP, "b": BIAS}
GRU = {"w_ru": _weights(K + C, 2 * C, seed=4), "w_c": _weights(K + C, C, seed=5),
       "b_ru": _weights(2 * C, seed=6), "b_c": _weights(C, seed=7)}  # fmt: skip
STATE = normal(B, C)


def _lstm_grad(x, cs, h, dc, dh):
    cell = raw.LSTMBlockCell(x=x, cs_prev=cs, h_prev=h, **LSTM)
    kept = {k: getattr(cell, k) for k in ("i", "cs", "f", "o", "ci", "co")}
    return list(
        raw.LSTMBlockCellGrad(
            x=x, cs_prev=cs, h_prev=h, cs_grad=dc, h_grad=dh, use_peephole=False, **LSTM, **kept
        )
    )[:2]


def _gru_grad(x, h, dh):
    cell = raw.GRUBlockCell(x=x, h_prev=h, **GRU)
    return list(raw.GRUBlockCellGrad(x=x, h_prev=h, r=cell.r, u=cell.u, c=cell.c, d_h=dh, **GRU))


def _block(name, **options):
    return lambda x, cs, h: list(
        getattr(raw, name)(seq_len_max=np.int64(T), x=x, cs_prev=cs, h_prev=h, **LSTM, **options)
    )


def _block_grad(name, **options):
    def body(x, cs, h, dcs, dh):
        layer = getattr(raw, name)(
            seq_len_max=np.int64(T), x=x, cs_prev=cs, h_prev=h, **LSTM, **options
        )
        return list(
            getattr(raw, name.replace("LSTM", "LSTMGrad"))(
                seq_len_max=np.int64(T), x=x, cs_prev=cs, h_prev=h, cs_grad=dcs, h_grad=dh,
                use_peephole=False, **LSTM, **layer._asdict(),
            )
        )[:3]  # fmt: skip

    return body


SAMPLES = [
    *[sample(name.replace("LSTM", "LSTMGrad"), _block_grad(name), normal(T, B, K), STATE, STATE,
        normal(T, B, C), normal(T, B, C), **{**_QUIET, "max_ops": 60})
        for name in ("BlockLSTM", "BlockLSTMV2")],
    sample("LSTMBlockCell", lambda x, cs, h: list(raw.LSTMBlockCell(
               x=x, cs_prev=cs, h_prev=h, forget_bias=0.5, cell_clip=1.0, use_peephole=True,
               **LSTM)), normal(B, K), STATE, STATE, **_QUIET),
    sample("LSTMBlockCellGrad", _lstm_grad, normal(B, K), STATE, STATE, STATE, STATE, **_QUIET),
    sample("GRUBlockCell", lambda x, h: list(raw.GRUBlockCell(x=x, h_prev=h, **GRU)),
           normal(B, K), STATE, **_QUIET),
    sample("GRUBlockCellGrad", _gru_grad, normal(B, K), STATE, STATE, **_QUIET),
    sample("BlockLSTM", _block("BlockLSTM", forget_bias=0.5, use_peephole=True), normal(T, B, K),
           STATE, STATE, **_QUIET),
    sample("BlockLSTMV2", _block("BlockLSTMV2", cell_clip=1.0), normal(T, B, K), STATE, STATE,
           **_QUIET),
    sample("IsotonicRegression", lambda x: list(raw.IsotonicRegression(input=x)), normal(2, 5),
           **_QUIET),
    sample("IsotonicRegression", lambda x: raw.IsotonicRegression(input=x).output, normal(2, 5),
           label="grad", xla=False, max_ops=24),
    sample("IsotonicRegression", lambda x: tf.nn.isotonic_regression(x)[0], normal(5),
           label="vector", **_QUIET),
    sample("NearestNeighbors", lambda x, c: list(raw.NearestNeighbors(
               points=x, centers=c, k=np.int64(2))), normal(4, 2),
           fixed(_weights(5, 2, seed=8)), **_QUIET),
    *[sample("FusedPadConv2D",
        lambda x, mode=mode: raw.FusedPadConv2D(input=x, paddings=[[0, 0], [1, 1], [1, 1], [0, 0]],
        filter=_weights(2, 2, 2, 3, seed=9), mode=mode, strides=[1, 1, 1, 1], padding="VALID"),
        normal(1, 4, 4, 2), label=mode, **_QUIET) for mode in ("REFLECT", "SYMMETRIC")],
    sample("FusedResizeAndPadConv2D", lambda x: raw.FusedResizeAndPadConv2D(
               input=x, size=[5, 5], paddings=[[0, 0], [1, 1], [1, 1], [0, 0]],
               filter=_weights(2, 2, 2, 3, seed=9), mode="REFLECT", strides=[1, 1, 1, 1],
               padding="VALID", resize_align_corners=True), normal(1, 4, 4, 2), **_QUIET),
]  # fmt: skip
