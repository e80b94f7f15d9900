"""The cases, contestants and clock of `eval/benchmark_speed.py`."""
