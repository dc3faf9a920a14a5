"""Reductions over axes."""

from __future__ import annotations

from tf_pfor.converters._families import reduction, table

reduction(table("Sum Mean Max Min Prod All Any", "keep_dims"))
