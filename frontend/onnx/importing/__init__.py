"""From an ONNX file to a Symbol."""
