"""ViT, its successors, and ResNet as the reference CNN."""
