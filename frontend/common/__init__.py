"""What every part of gluonjit may use, and what knows of no graph and no array: signals, work on other threads, times
of stages, attributes, archives, diagrams, quantities as text, and the matrices of short convolutions."""
