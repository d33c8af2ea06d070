"""Calls of the station itself: runners and wheels, each a row before it is made."""
