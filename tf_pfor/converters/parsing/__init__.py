"""Converters of parsers and decoders: text and bytes that become tensors, and the other way.

It may import `converters/ragged`, `fallback` and below: what rows hold may have a length of its
own. Nobody may import it. Strings that stay strings are in `converters/strings`.
"""

from tf_pfor.converters.parsing import examples as examples
from tf_pfor.converters.parsing import media as media
from tf_pfor.converters.parsing import protos as protos
from tf_pfor.converters.parsing import raw as raw
from tf_pfor.converters.parsing import sequences as sequences
from tf_pfor.converters.parsing import text as text
