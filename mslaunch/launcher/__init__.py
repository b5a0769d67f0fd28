"""Floor 6, the launcher: events in, actions out; output, input and the report.  It knows no command line."""
