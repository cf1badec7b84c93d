"""What `bench/measure.py` needs to run load tools beside `outlay measure`."""
