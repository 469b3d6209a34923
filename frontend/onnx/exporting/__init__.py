"""From a graph of the compiler to an ONNX file."""
