"""How every command ends."""

FINE, FAILED, REGRESSED, NOT_COMPARABLE, WRONG, USAGE = 0, 1, 2, 3, 4, 64
