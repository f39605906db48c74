"""What `kubectl omni` prints: lines of text from decisions and live objects. Pure; the commands
that fetch and print live in `omni_cli`."""
