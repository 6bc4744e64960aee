"""What models cost on this machine: latency, throughput, memory and energy, measured in a child process."""
