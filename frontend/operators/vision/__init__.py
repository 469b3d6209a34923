"""Boxes, regions of interest, warps and images."""
