"""What is swept of tf.raw_ops."""

from __future__ import annotations

from tools.sweep.cases import Case

RAW: list[Case] = []
