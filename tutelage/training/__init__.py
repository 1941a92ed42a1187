"""Episodes → better weights."""
