"""The walker: it goes through the graph of a body and asks converters what each op becomes.

``walker`` implements the protocol ``core.conversion``, by which all others know it; ``contracts``
is the table of what each layout promises, which tests hold every value against. It may import
``core``, ``layouts`` and ``fallback``; converters it reaches through the registry only. What is
done for one kind of op does not belong here: that is a converter.
"""
