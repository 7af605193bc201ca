"""Calibration: how a judge's verdicts agree with people's.

It tells what a pass rate is once the judge's errors are known.
"""
