"""Function calls and custom gradients."""
