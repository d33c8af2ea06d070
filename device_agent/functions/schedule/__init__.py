"""What a device runs by itself, and when. Changes are kept on it, so they outlast a restart."""
