"""Converters of ops of text, also of ops that split text into pieces, and of tables.

It may import `converters/sparse` and below; nobody may import it. Bytes that are parsed or
decoded do not belong here: that is `converters/parsing`.
"""

from tf_pfor.converters.strings import strings as strings
from tf_pfor.converters.strings import tables as tables
from tf_pfor.converters.strings import text as text
