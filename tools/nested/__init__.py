"""Random programs of nested control flow, against a loop over rows."""
