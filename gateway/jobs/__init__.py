"""Jobs, in the order they live: accept, expect, deliver, collect, close."""
