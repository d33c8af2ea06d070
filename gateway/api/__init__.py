"""The one door for the command line, scripts and later the console: HTTP on a unix socket."""
