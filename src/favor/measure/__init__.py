"""What models cost: counts taken from one operator trace, and meters that time, weigh and power the real thing."""
