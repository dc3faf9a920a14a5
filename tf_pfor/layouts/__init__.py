"""Layouts of values: lists, items by row, repeated lists and ragged rows.

Each layout has one file, with its storage and the ways into and out of it. The room may import
`core` and `_tf`; the fallback and all converters may import it. Rules of ops do not belong here,
nor does code of the walker for every value.
"""
