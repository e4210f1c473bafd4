"""What the records say over commits: points, sides that may be compared, tables of two commits."""
