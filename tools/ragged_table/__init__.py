"""What may be done with rows of different shapes, here and elsewhere."""
