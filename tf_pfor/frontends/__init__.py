"""Other ways in: existing code that calls TensorFlow's own functions.

They use the public functions of `api` and `derivatives`, and the registry. Nobody but the top
of the package imports them. A converter that only a front end needs still belongs into
`converters/`.
"""
