"""Values in registers, and functions of them, as instructions on vectors."""
