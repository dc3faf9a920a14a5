"""Segment reductions and bincounts."""
