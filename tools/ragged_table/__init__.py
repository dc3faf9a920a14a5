"""What may be done with rows of different shapes, beside RaggedTensors and torch's nested tensors."""
