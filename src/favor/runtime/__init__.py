"""How a model is run: PyTorch's eager mode, `torch.compile`, ONNX Runtime, OpenVINO; export, and int8.

`TorchSession` runs a model in PyTorch. `export_file` writes a file that ONNX Runtime or OpenVINO runs without favor,
and `open_file` opens one. Evaluating and predicting take a `Session` and need not know which runtime is behind it.
Measuring and load tests take a workload instead, whose call is the forward pass alone, on images that are in place: a
`Session` also moves images and converts outputs, which would be timed.
"""
