"""`gluonjit report`: a model's compilation and measured calls as one HTML file."""
