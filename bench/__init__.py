"""What remq costs, measured: `python -m bench`, or one measurement at a time."""
