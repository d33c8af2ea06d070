"""The words spoken between stations and devices. Pure: no sockets, no clock, no files."""
