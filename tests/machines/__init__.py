"""Tests of maps that run in more than one process, or for more than one caller."""
