"""Around the library: the command line, `install_as_mxnet`, and which of MXNet's names a program uses."""
