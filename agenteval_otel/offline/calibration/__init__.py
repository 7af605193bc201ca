"""Calibration: how a judge's verdicts agree with people's, and what a pass rate is once its errors
are known.
"""
