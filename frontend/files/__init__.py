"""Files of arrays: MXNet's `.params`, NumPy's `.npz`, `.safetensors`; and reading untrusted JSON.

This package converts between bytes and arrays; it does not know symbols or blocks. Files are not trusted: declared
sizes are checked against the actual ones before memory is allocated, and every violation raises a `CheckpointError`
that names the file, the place and what was expected there.
"""
