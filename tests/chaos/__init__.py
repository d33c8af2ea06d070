"""A system of real processes in network namespaces, broken on purpose, and the proof that nothing was lost."""
