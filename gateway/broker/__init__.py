"""The site's MQTT broker: run by us, given to us, or embedded for a machine that has none."""
