"""The face of the command: dialects of the command line, their help, and what the shell gets back."""
