"""What a station runs by itself, and when."""
