"""Converters of ops of text.

It may import `converters/arrays` and below; nobody but control flow may import it. Text that
splits into pieces, whose number differs between rows, is not here: that is a layout.
"""

from tf_pfor.converters.strings import strings

__all__ = [
    "strings",
]
