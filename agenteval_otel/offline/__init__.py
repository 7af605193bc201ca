"""Runs, suites, comparison, calibration, replay and reports: what works on recorded answers."""
