"""Training judges: the loop, and the embedded judge's recipe."""
