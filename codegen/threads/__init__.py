"""How kernels are called: in which order, with what memory, by a team of threads that meets at barriers."""
