"""Tests of the objectives that are watched in the process."""
