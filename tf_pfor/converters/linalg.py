"""Linear algebra with native batch dimensions."""
