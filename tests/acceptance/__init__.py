"""The whole of remq as real processes, killed at the worst moments."""
