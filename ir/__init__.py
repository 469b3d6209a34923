"""The compiler's typed graph."""
