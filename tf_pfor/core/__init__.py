"""The machinery that all rules share: values, the loop, calls, the registry, emission, reports.

``values`` has the common layouts and their protocol, ``conversion`` the protocol of the walker. It
may import ``_tf`` and nothing else; all other rooms may import it. What is about one op, one topic
or one special layout does not belong here: see ``converters``, ``layouts``, ``walker``.
"""
