"""The command line: examples in every help, exit codes, JSON and nothing else."""
