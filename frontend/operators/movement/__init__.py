"""What makes, moves, joins and looks up elements."""
