"""What goes out: model cards, and uploads to the Hugging Face Hub."""
