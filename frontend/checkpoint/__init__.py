"""Reading and writing the files that MXNet wrote: -symbol.json and .params.

`params`, `symbol_json` and `symbol_writer` know the formats; `parameters` puts arrays into the parameters of
blocks. A file is never trusted: what it announces is checked against what it holds before memory is taken for it, and
every violation is one `CheckpointError` that names the file, the place and what was expected there.
"""
