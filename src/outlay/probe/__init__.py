"""The client that measures: sender processes that only send and stamp, parsers that understand afterwards."""
