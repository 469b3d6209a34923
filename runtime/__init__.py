"""Running compiled graphs."""
