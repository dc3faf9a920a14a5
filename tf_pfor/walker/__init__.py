"""The walker: it goes through the graph of a body and asks converters what each op becomes.

``walker`` implements the protocol ``core.conversion``, by which all other rooms know it.
``contracts`` is the table of the promises of each layout; tests hold every value against it. The
room may import ``core``, ``layouts`` and ``fallback``; it reaches converters through the registry
only. Code for one kind of op does not belong here: that is a converter.
"""
