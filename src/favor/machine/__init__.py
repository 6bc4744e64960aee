"""Where it runs: devices, precision, environment, clocks, memory and energy meters, child processes."""
