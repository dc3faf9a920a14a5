"""Dynamic batching: recursive Python runs for each example; equal ops of examples run at once."""
