"""The command line: `remq` and everything an operator types."""
