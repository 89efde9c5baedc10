"""The command line: one file a command; a command's room is loaded when the command runs."""
