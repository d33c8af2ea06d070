"""What the files and commands of a machine say, read from their text. Pure: from text to values."""
