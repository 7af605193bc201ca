"""Watches the objectives of criteria, and calls back when one is breached or met again."""
