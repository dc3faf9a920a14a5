"""Converters of parsers and decoders: text and bytes that become tensors, and the other way.

It may import `converters/ragged`, `fallback` and below: what rows hold may have a length of its
own. Nobody may import it. Strings that stay strings are in `converters/strings`.
"""

from tf_pfor.converters.parsing import examples, media, protos, raw, sequences, text

__all__ = [
    "examples",
    "media",
    "protos",
    "raw",
    "sequences",
    "text",
]
