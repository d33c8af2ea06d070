"""Engines: long-running plugins beside a station, each in processes of its own, watched and started again."""
