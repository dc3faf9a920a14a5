"""What a layout of a value can do: lists, items by row, repeated and ragged ones.

One file for each layout, with what it is stored as and the ways into and out of it. It may
import `core` and `_tf`; the fallback and all converters may import it. Rules of ops do not
belong here, nor what the walker does with every value.
"""
