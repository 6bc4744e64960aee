"""What can be compared: the architectures, one file each, in folders that follow the taxonomy."""
