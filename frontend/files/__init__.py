"""Files of arrays: MXNet's `.params`, NumPy's `.npz`, `.safetensors`; and reading JSON that nobody vouches for.

Bytes in, arrays out: nothing here knows symbols or blocks. A file is never trusted: what it announces is checked
against what it holds before memory is taken for it, and every violation is one `CheckpointError` that names the file,
the place and what was expected there.
"""
