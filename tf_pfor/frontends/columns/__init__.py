"""Engines of data: functions of one row that run on batches of columns (docs/many_machines.md)."""

from tf_pfor.frontends.columns._function import ColumnFunction, column_function

__all__ = ["ColumnFunction", "column_function"]
