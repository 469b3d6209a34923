"""How much of what is random or of one kind is tried: a little in the suite, more by `make soak`."""

import os

SOAK = int(os.environ.get("SOAK", "1"))
"""How many times what the suite tries."""


def tries(few: int) -> int:
    """How many programs, files or networks to try, where the suite tries `few`."""
    return few * SOAK
