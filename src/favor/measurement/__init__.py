"""What models cost here: latency, throughput, memory and energy, measured in a child process."""
