"""Libraries that run a compiled model without Python (`gluonjit build`): from a block to the files in a folder."""
