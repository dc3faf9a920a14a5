"""The figures of the papers, with peers: a module for each workload, ``work`` has their form."""
