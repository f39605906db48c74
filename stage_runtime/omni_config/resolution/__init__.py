"""Who set what: from files, objects and flags to a configuration that knows its history."""
