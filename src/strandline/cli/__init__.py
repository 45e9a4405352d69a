"""The command line: parsing arguments and printing answers."""
