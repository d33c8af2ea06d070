"""An upgrade that can be taken back: the package that ran keeps itself, and a guard puts it back when it must.

Everything here but ``news.py`` uses the standard library alone: it runs while the package around it is replaced.
"""
