"""Orchestrations: files of steps that a station takes one after another, over its devices and on itself."""
