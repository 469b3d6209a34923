"""Reading and writing the files that MXNet wrote: -symbol.json and .params."""
