"""The sentiment model whose word goes into the prompt: n-grams and a lexicon on ONNX Runtime, microseconds a post."""
