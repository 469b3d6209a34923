"""The one place that states the version; pyproject.toml reads it without importing the package."""

version = "0.1.0"
