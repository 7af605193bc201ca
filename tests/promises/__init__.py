"""The promises of `docs/`: each module injects the real fault and holds one promise to its figure."""
