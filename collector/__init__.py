"""How it is measured, and the record of it."""
