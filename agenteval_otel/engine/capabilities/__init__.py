"""What stands around the route of an answer, a module or folder each. Imported by `config` alone."""
