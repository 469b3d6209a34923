"""What training needs beside optimizers: first values of parameters, and schedules of learning rates."""
