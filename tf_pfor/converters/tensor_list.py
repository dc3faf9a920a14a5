"""TensorLists: what TensorArray is made of."""
