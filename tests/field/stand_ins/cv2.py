"""OpenCV for scripts that import it for a part of them which is not run here."""
