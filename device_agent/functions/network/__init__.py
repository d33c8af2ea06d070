"""The network as the device sees it."""
