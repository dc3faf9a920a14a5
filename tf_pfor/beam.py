"""Apache Beam: functions of one element that run on batches (docs/many_machines.md).

It needs Apache Beam: ``pip install "tf-pfor[beam]"``.
"""

from tf_pfor.frontends.columns._beam import Map

__all__ = ["Map"]
