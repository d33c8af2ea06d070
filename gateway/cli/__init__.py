"""The command line: a client of the station's API, one file per noun."""
