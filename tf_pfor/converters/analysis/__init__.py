"""What the graph of a body tells before anything is converted.

What the variants hold, which variables a loop's graph changes and how often it runs, and what
may run for rows that are not active. It may import `core` and `layouts`; every other room of
converters may import it. What emits an op does not belong here.
"""
