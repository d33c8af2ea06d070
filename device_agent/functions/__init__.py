"""Execution modules: one file each, named as in Salt. Every function is ``async def`` and takes a ``Host`` first."""
