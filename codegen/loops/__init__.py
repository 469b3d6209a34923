"""Loop nests for fused groups: everything that is computed element by element."""
