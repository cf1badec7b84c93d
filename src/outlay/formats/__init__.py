"""Codecs: bytes to core values and back, one file a format. `reading.read` finds the format by the content."""
