"""The ops: one module is one op."""
