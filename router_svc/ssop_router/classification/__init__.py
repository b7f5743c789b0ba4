"""The complexity classifier: features of a text, the artefact that holds a model, and the model on ONNX Runtime."""
