"""How a model is run: PyTorch's eager mode, `torch.compile`, ONNX Runtime, OpenVINO; export, and int8.

`TorchSession` runs a model in PyTorch. `export_file` writes a file that ONNX Runtime or OpenVINO runs without favor,
and `open_file` opens one. Measuring and evaluating take a `Session` and need not know which runtime is behind it.
"""
