"""The machinery: values, the loop, rules and their registry, calls, and the walker.

It may import `_tf` and nothing else; the walker reaches converters by the registry, and
layouts and fallbacks by what they register. All other rooms may import it. What is about one
op, one topic or one layout does not belong here: see `converters/`, `layouts/`.
"""
