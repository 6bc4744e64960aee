"""The Vision X-formers: compositions of the other parts at CIFAR size."""
