"""Tests of the forms of other frameworks."""
