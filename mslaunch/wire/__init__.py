"""Floor 3, the wire: bytes and events.  It carries frames and wakes callbacks; it does not know what a job is."""
