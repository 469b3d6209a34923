"""Tools: the command line, `install_as_mxnet`, and the analysis of which of MXNet's names a program uses."""
