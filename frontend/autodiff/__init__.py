"""Gradients: what has been recorded (`tape`), and the graphs of its gradient (`computation`)."""
