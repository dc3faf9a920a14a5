"""Facts that the graph of a body tells before anything is converted.

The facts are the content of variants, and the ops that may run for rows that are not active. For
loops they are the variables that the graph changes, and the number of trips. The room may import
`core` and `layouts`; every other room of converters may import it. Code that emits an op does not
belong here.
"""
