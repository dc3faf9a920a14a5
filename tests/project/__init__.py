"""Tests of the repository as a whole: its shape, pages, examples, clients."""
